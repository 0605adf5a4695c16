"""Exports a terminal as a recording or a picture, and plays recordings."""
