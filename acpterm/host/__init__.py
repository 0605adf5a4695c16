"""The host: runs terminals, and serves agents and the user's clients over connections.

The host of a daemon runs in its worker; the keeper (`acpterm.keeper`) owns the programs.

Starting and supervising:

- `daemon`: runs a host as a process: on sockets, or for one agent on stdin and stdout.
- `open_host`: opens and closes a host, and supervises its tasks.
- `host`: serves each connection until the host is closed.
- `host_state`: the objects that all connections of a host share.
- `restore`: restores the connections, sessions and terminals of the previous worker.

Terminals:

- `registry`: all terminals, and how long each is retained.
- `entry`: one terminal in the registry, with its owner and its record.
- `names`: which names a terminal may have, and which terminal a name means.
- `retention`: chooses the terminals to forget when a limit is exceeded.
- `terminal_ops`: operations that agents and the user share: read, write, signal, screen.
- `terminal_info`: describes terminals and exit statuses for the wire.
- `input_monitor`: detects programs that wait for input.
- `windows`: the windows attached to terminals, and the terminal sizes that follow from them.
- `events`: the event bus.
- `memory`: limits the memory of agents' sessions.

Subpackages:

- `server`: listening sockets, and the serving of one connection.
- `agent`: the agents' side: connections, sessions and methods. Imports nothing of `user`.
- `user`: the user's side: methods, attached windows, subscriptions. Imports nothing of `agent`.
- `sessions`: the parts of an agent's session that the user's side may see.
- `launch`: from the params of a create request to a running program.
- `recording`: recordings of terminals as asciicast files.
- `state`: records that survive the worker, in the keeper's store.
"""
