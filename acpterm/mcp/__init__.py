"""The MCP server: terminals of the host as tools for MCP clients (`acpterm mcp`).

- `run`: the command; `connection`: requests, responses and notifications; `types`: the values in
  them; `server`: lists the tools and calls them;
- `tool_sets`, `tool_set_names`: the sets of tools, of which a client gets one; `session_tools`
  (acpterm's own set), `pool_tools`, `codex_tools`, `claude_tools`, `inspect_tools` (like those of
  other products): the tools of each set;
- `tool`: one tool with its schemas; `arguments`: names under which models pass a parameter;
  `tool_error`: errors for the model; `patterns`: regular expressions of the model;
- `sessions`: the connection to the host, and the terminals that the client has started;
  `starting`: starts that may need the user's approval; `questions`: questions to the user;
- `shells`, `named_shell`: persistent shells; `shell_replies`: results of their commands;
- `call`: one call with its deadline and progress; `waiting`: waiting for output and reading it;
- `states`: the first line of each result; `cropping`: the beginning and the end of long output;
- `resources`: output and screens as MCP resources.
"""
