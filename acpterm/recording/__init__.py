"""Recordings of terminals as asciicast files."""
