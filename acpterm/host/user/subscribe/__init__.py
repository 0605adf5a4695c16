"""Subscriptions to a session: its tool calls and the output of their terminals."""
