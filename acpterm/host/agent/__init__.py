"""What the host is to agents: their connections, sessions and methods."""
