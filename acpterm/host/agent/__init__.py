"""The agents' side of the host: connections, and the methods that agents call."""
