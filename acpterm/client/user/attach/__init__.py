"""Attach to a terminal, from a window or from a script."""
