"""`acpterm prompt`: a headless ACP client, which runs one turn of one agent for a script or a user.

- `run`: starts the agent, opens a session, runs the turn, ends everything; the exit statuses.
- `outcome`: decides how the run ends: end of turn, signal, timeout, broken stdout.
- `acp_client`: sends the requests to the agent, and dispatches the agent's requests.
- `request_tasks`: runs handlers of the agent's requests, each in a task of its own.
- `files`: handles `fs/read_text_file` and `fs/write_text_file`.
- `permissions`: decides whether to allow a tool call, by rule or by asking the user.
- `command_questions`: asks the user whether the host may run a command.
- `tool_calls`: the state of the turn's tool calls.
- `turn`: passes updates and output of the turn on to a printer.
- `printer`: the interface of the two printers. `text_printer`: for a human reader. `json_printer`:
  JSON lines for programs.
"""
