"""From a request for a terminal to a running program."""
