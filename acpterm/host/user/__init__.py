"""The user's side of the host: the methods that the user's commands call on the user's socket.

- `admission`: decides whether a connection to the user's socket is the user's or an agent's.
- `connection`: the state of one connection of a user's client.
- `methods`: the table of the user's methods.
- `terminal_methods`: the handlers of `_acpterm/terminal/*`, except those in `launch_methods`.
- `launch_methods`: the handlers that create, restart and inspect a terminal.
- `daemon_methods`: the handlers about the host as a whole: status, events, sessions, shutdown; and
  `initialize`.
- `web_methods`, `share_methods`: the handlers of `_acpterm/web/*` and `_acpterm/share/*`.
- `shared_terminal`: the methods of a visitor, who has a link to one terminal.
- `approval_methods`: the handlers of `_acpterm/approval/*` and `_acpterm/approver`.
- `policy_methods`: the handlers that judge commands, and list the profiles.
- `review_methods`: the handlers that read the audit log and the recordings.
- `attach`: keeps an attached window up to date.
- `follow`: sends the output of a terminal live, as bytes.
- `subscribe`: sends the tool calls of an agent's session, and the output of their terminals.
"""
