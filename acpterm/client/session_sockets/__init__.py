"""Private sockets for `proxy --mcp` and `prompt --mcp`: one for each ACP session of an agent.

`acpterm mcp`, which the agent starts as an MCP server of the session, connects to the session's
socket and sends requests as an agent does. The client (the proxy or the prompt) passes these
requests on to the host on its own connection, with the id of the ACP session. So the terminals of
the MCP server belong to that session.

- `sockets`: creates, binds and closes the sockets of all sessions.
- `session_socket`: listens on the socket of one session, and accepts clients.
- `socket_client`: relays between one client of a socket and the host.
- `routes`: passes the host's events on to the clients that have requested them.
- `server_entry`: adds `acpterm mcp` to the `mcpServers` of a session.
"""
