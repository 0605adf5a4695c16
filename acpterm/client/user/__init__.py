"""Clients of the user's socket: the work of the commands that the user runs (`ls`, `attach`, …).

There are two clients with the same methods, and a module that both use:

- `blocking_client` (with `blocking_connection`): for commands that send one request after another.
  It does not import trio, since the import takes longer than such a command.
- `client`: for commands that do several things at once, in trio.
- `requests`: decodes responses, words errors, and says which requests are repeated after the
  connection was lost.

Built on them:

- `attach`: shows a terminal in this window and sends it what is typed. `output`: reads and prints
  output. `export`: recordings and pictures. `doctor`: the checks of `acpterm doctor`.
- `events`: follows the daemon's events. `event_format`: events as lines of text.
- `format`: terminals as rows of a list, and times, sizes and exit statuses as text.
- `list_view`: the state of the interactive list of `acpterm ls --watch`.
- `send_keys`: types text and keys into a terminal.
- `completion`: candidates for the shell's completion.
- `bridge`: the local program of a terminal that another host's daemon keeps.
- `shutdown`: ends the daemon. `worker`: the worker's status and replacement.
"""
