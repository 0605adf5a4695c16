"""The terminal service: commands, scripts and sessions in exchangeable providers.

A session is an interactive program in a terminal of its own, not an ACP session.
"""
