"""Private sockets for `proxy --mcp` and `prompt --mcp`: one for each ACP session of an agent.

`acpterm mcp`, which the agent starts as an MCP server of the session, connects to the session's
socket and speaks the agents' protocol. Its requests go to the host on the client's own connection,
with the id of the ACP session in place of its own: so its terminals belong to that session.
"""
