"""Reads, follows and prints the output of a terminal."""
