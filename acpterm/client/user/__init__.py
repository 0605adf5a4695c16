"""Clients of the user's socket: the work of the commands that the user runs (`ls`, `attach`, …).

There are two clients with the same methods, and a module that both use:

- `blocking_client` (with `blocking_connection`): for commands that send one request after another.
  It does not import trio, since the import takes longer than such a command.
- `client`: for commands that do several things at once, in trio.
- `requests`: decoding of responses, error messages, and the list of requests that are repeated
  after the connection was lost.

Built on them:

- `attach`: shows a terminal in this window, and sends typed keys to it. `output`: reads and prints
  output. `export`: recordings and pictures. `doctor`: the checks of `acpterm doctor`.
- `events`: follows the daemon's events. `approvals`: follows questions to the user.
- `list_view`: the state of the interactive list of `acpterm ls --watch`. `keyboard`: reads keys in
  a command that prints.
- `send_keys`: types text and keys into a terminal.
- `completion`: candidates for the shell's completion.
- `daemon_status`: reads the daemon's status. `worker_restart`: replaces the daemon's worker.
  `shutdown`: ends the daemon.
- `browser`: opens the page in the user's browser.
- `only_users`: refuses, in agents' terminals, commands that change settings.
- `bridge`: the local program of a terminal that another host's daemon keeps.
- `format`: terminals as rows of a list, and times, sizes and exit statuses as text.
  `event_format`, `audit_format`, `approval_format` and `share_format`: events, entries of the audit
  log, questions and shares as text.
"""
