"""What the host is to the person: every terminal, windows on it, and what happens."""
