"""Listening sockets, and the serving of one connection of an agent or of a user's client.

- `daemon_sockets`: opens the sockets of a daemon, and stores them for later workers.
- `unix_listener`: binds one Unix socket, and holds the lock on its path.
- `systemd`: checks the sockets that systemd hands over.
- `acceptor`: accepts connections, even when no file descriptor is left.
- `peer`: identifies the process at the other end of a connection.
- `connection`: receives messages from one stream, calls their handlers, and sends the responses.
- `dispatch`: the dispatch tables, and the interface between a connection and its handlers.
"""
