"""The protocol of a PTY pool, which user interfaces of another product speak: `/ws`, `/pty/spawn`.

A PTY pool is that product's set of background terminals. Here it is all terminals of the daemon.

- `handlers`: the HTTP requests on both paths; `spawn`: the creation of a terminal by `/pty/spawn`;
- `websocket`: one client on `/ws`, and its messages; `messages`: the messages as types;
- `ids`: the ids of terminals on one WebSocket; `channel`: sending of messages, one at a time;
- `output`: the output of one terminal that the client has attached to; `events`: the events about
  all terminals.
"""
