"""The other end of ACP: runs agents (`proxy`, `prompt`), or is run by them (`stdio`).

Each has a connection to the host of its terminals (`host_connection`). The Python API and the MCP
server use some modules of this package, too.
"""
