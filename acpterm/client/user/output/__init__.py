"""Reading, following, searching and printing the output of a terminal."""
