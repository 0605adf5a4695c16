"""What the commands do: connect to the daemon, run agents, and add acpterm to their settings.

`acpterm.cli` parses the command lines and calls this package. The Python API (`acpterm.api`) and
the MCP server (`acpterm.mcp`) use some of its modules too.

A command of the user speaks to the user's socket (`user`). A command for agents (`proxy`, `prompt`,
`stdio`) has a connection to the host of their terminals (`host_connection`). All connections are
those of `acpterm.link`.
"""
