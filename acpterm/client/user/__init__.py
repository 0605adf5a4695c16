"""The client of the user's socket, on which the commands about terminals are built."""
