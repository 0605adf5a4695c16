"""The host: connections, sessions, method handlers, listeners, and what supervises them."""
