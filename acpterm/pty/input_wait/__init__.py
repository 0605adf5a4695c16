"""Detection of whether a program waits for input from its terminal."""
