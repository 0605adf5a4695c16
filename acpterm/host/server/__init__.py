"""Listening sockets, and the serving of one connection of an agent or of a client of the user."""
