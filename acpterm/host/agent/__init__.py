"""The agents' side of the host: connections, their sessions, and the methods that agents call.

- `connection`: the state of one agent's connection: its sessions and terminals.
- `session`: one session: the terminals that the agent may name, and the agent's tool calls.
- `session_records`: stores the records of a session for the next worker.
- `methods`: the table of the agents' methods.
- `session_methods`: the handlers of `initialize`, `session/*` and `_acpterm/session/*`.
- `terminal_methods`: the handlers of `terminal/*`, and of the `_acpterm/terminal/*` methods that
  change a terminal.
- `read_methods`: the handlers of the `_acpterm/terminal/*` methods that list, describe and read
  terminals.
- `command_methods`: the handler of `_acpterm/command/check`.
- `event_methods`: the handler of `_acpterm/events`.
- `gate`: decides whether a command may run.
- `judgement`: the judgement on a command by all profiles of the connection, for `gate`.
- `refusals`: the errors for commands that were refused.
- `approvals`: asks the user whether a command may run, and handles the answers.
- `approver`: sends questions to a client that asks the user.
- `creates`: recognises a `terminal/create` request that is repeated after a reconnect.
- `resumption`: moves a connection to a new transport after its peer has reconnected.
- `relay_parent`: finds the agent behind a process that only relays messages.
"""
