"""Private sockets for `proxy --mcp` and `prompt --mcp`: one for each ACP session of an agent.

`acpterm mcp`, which the agent starts as an MCP server of the session, connects to the session's
socket and sends requests as an agent does. The client (the proxy or the prompt) passes these
requests on to the host on its own connection, with the id of the ACP session. So the terminals of
the MCP server belong to that session.
"""
