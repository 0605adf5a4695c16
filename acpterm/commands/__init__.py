"""Clients of the user's socket: the work of the commands that the user runs (`ls`, `attach`, …).

`blocking_client` is for commands that send one request after another: it does not import trio,
since the import takes longer than such a command. `client` has the same methods in trio, for
commands that do several things at once. `requests` has what both share.
"""
