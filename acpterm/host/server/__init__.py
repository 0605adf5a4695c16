"""Listening sockets, and the code that serves a connection of an agent or of a user's client.

- `sockets`: all sockets that a daemon listens on, and how they outlive a worker.
- `listener`: binds one Unix socket, and holds the lock on its path.
- `systemd`: checks the sockets that systemd hands over.
- `accepting`: accepts connections, even when no file descriptor is left.
- `peer`: identifies the process at the other end of a connection.
- `connection`: receives messages from one stream, calls their handlers, and sends the responses.
- `dispatch`: the dispatch tables, and the interface between a connection and its handlers.
"""
