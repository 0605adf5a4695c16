"""Sends the tool calls of an agent's session, and the output of the terminals that they show."""
