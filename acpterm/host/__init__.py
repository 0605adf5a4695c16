"""The host: runs terminals, and serves agents and the user's clients over connections.

The host of a daemon runs in its worker; the keeper (`acpterm.keeper`) owns the programs.

Starting and supervising:

- `start_keeper`: forks a daemon's two processes: the keeper and its first worker.
- `daemon`: runs a host in this process: as a worker on sockets, or for one agent on stdin and
  stdout.
- `open_host`: starts and supervises all tasks of a host, and closes the host.
- `host`: serves each connection until the host is closed.
- `host_state`: the objects that all connections of a host share.
- `restore`: restores the connections, sessions and terminals of the previous worker.
- `web_interface`: the interface through which the host uses the daemon's HTTP server.

Commands that agents request:

- `policy`: the profiles, rules and providers of a host.
- `profiles`: selects the profile of an agent's connection.
- `quotas`: limits how many terminals agents have, and how many they start in a minute.
- `approvals`: stores questions to the user. Issues tokens to clients that put these questions to
  the user.
- `checked_command`: the response to a request to check a command.
- `audit_trail`: writes what happens in a host to the audit log.

Terminals:

- `registry`: all terminals, and how long each is retained.
- `entry`: one terminal in the registry, with its owner and its record.
- `names`: which names a terminal may have, and which terminal a name means.
- `retention`: chooses the terminals to forget when a limit is exceeded.
- `terminal_ops`: operations that agents and the user share: read, write, signal, screen.
- `terminal_info`: describes terminals and exit statuses for the wire.
- `input_monitor`: detects programs that wait for input.
- `limit_monitor`: kills terminals that are idle for too long.
- `idle_terminal`: the activity of one terminal that `limit_monitor` watches.
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
