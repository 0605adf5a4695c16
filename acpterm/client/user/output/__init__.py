"""Reading what a terminal has printed and prints."""
