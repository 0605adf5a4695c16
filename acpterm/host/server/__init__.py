"""Listening, accepting and serving connections."""
