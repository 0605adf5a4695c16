"""The MCP server: terminals of the host as tools for MCP clients (`acpterm mcp`).

- `server`: the server of the official SDK, which lists tools and calls them;
- `profiles`: which tools a client gets: `session`, `pool`, `codex` or `claude`;
- `tool`: one tool with its schemas; `arguments`: names under which models pass a parameter;
- `session_tools`, `pool_tools`, `codex_tools`, `claude_tools`: the tools, one module each;
- `host_link`: the connection to the host; `sessions`: the terminals that the client has started;
- `call`: one call with its deadline and progress; `waiting`: waiting for output;
- `states`: the first line of each result; `cropping`: the head and the tail of long output.
"""
