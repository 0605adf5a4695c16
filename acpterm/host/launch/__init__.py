"""Launching a terminal: from the params of a create request to a running program."""
