"""The agents' side of the host: connections, their sessions, and the methods that agents call.

- `connection`: the state of one agent's connection: its sessions and terminals.
- `session`: one session: the terminals that the agent may name, and the agent's tool calls.
- `methods`: the table of the agents' methods.
- `session_methods`: the handlers of `initialize`, `session/*` and `_acpterm/session/set`.
- `terminal_methods`: the handlers of `terminal/*`, and of `_acpterm/terminal/*` that change one.
- `read_methods`: the handlers that list, describe and read terminals.
- `command_methods`: the handler of `_acpterm/command/check`.
- `event_methods`: the handler of `_acpterm/events`.
- `gate`: decides whether a command may run; `judgement` and `refusals` are parts of it.
- `approvals`: asks the user whether a command may run, and handles the answers.
- `approver`: sends questions to a client that asks the user.
- `creates`: recognises a `terminal/create` request that is repeated after a reconnect.
- `resumption`: moves a connection to a new transport after its peer has reconnected.
- `relay_parent`: finds the agent behind a process that only relays messages.
"""
