"""The host: runs terminals, and serves agents and the user's clients over connections.

The host of a daemon runs in its worker; the keeper (`acpterm.keeper`) owns the programs. `daemon`
runs a host, `open_host` starts and supervises its tasks, `host` serves connections, and
`terminals`, `guard` and `daemon_state` are what they pass on. `access` says what a peer may do with
a terminal, and `verbs` does it.

`agent` and `user` are the two sides, which do not import each other; `sessions` is what the user's
side may see of an agent's session. `launch` goes from a create request to a running program,
`state` has the records that survive the worker, and `server` the sockets.
"""
