"""Another product's protocol for terminals, on `/ws` and `/pty/spawn`.

A PTY pool is the set of background terminals of that product, for agents and for its user
interface. Programs that speak its protocol can use the daemon: here, the pool is all terminals of
the daemon. docs/internals/compatibility.md compares acpterm with that product.

- `handlers`: the HTTP requests on these paths;
- `websocket`: one client on `/ws`, and its messages; `messages`: the messages as types;
- `channel`: sending of messages, one at a time;
- `output`: the output of one terminal that the client has attached to.
"""
