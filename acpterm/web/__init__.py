"""The HTTP server of a daemon: the page, the user API and the agents' API over WebSocket.

Needs the extra `web`. Only `service`, `access` and `endpoint` can be imported without it.
"""
