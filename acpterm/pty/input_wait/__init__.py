"""Whether a program waits for input from its terminal."""
