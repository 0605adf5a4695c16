"""Sockets and connections: listening, accepting, and serving one peer."""
