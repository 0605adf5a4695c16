"""Being at a terminal, with a window and without."""
