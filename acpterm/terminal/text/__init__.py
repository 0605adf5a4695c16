"""The text view of a terminal: what agents read."""
