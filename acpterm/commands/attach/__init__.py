"""Attaches to a terminal, from a window (`attach`) or from a script (`pipe`)."""
