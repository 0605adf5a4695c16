"""The client of the user's socket: what the commands about terminals are made of."""
