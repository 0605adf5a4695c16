"""The agents' side of the host: connections, sessions and methods."""
