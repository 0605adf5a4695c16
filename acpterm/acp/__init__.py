"""The messages of ACP v1 and of acpterm's own methods (``_acpterm/…``), as msgspec Structs.

Decoding:

- `base`: the base class of all Structs, and the annotations for values that may be invalid.
- `lenient`: decodes a message exactly as leniently as ACP's schema requires.
- `raw_json`: reads members, items and strings from JSON that is not decoded yet.

Messages of ACP v1:

- `initialize`: ``initialize``, as a terminal host receives it and responds to it.
- `session`: ``session/update`` and ``session/cancel``.
- `terminal`: ``terminal/*``.
- `terminal_updates`: the parts of a ``session/update`` that describe terminals run by the agent.
- `agent`: the other messages that `acpterm prompt` exchanges with an agent.

Messages of acpterm's own:

- `agent_api`: methods for agents.
- `agent_meta`: the member `acpterm` of ``_meta``, such as the options of ``terminal/create``.
- `approvals`: questions to the user whether an agent's command may run, and their answers.
- `user_api`: methods on the user's socket, about terminals, sessions and the daemon.
- `user_streams`: methods on the user's socket that stay open and send notifications.
- `user_review`: methods on the user's socket about the policy, the audit log and recordings.
- `user_undo`: methods on the user's socket that restore directories.
- `web_api`: methods on the user's socket about the HTTP server.
- `shares`: links to one terminal, and the messages that visitors with a link get.
- `pool`: the terminals of a PTY pool, as MCP tools and the WebSocket protocol describe them.
"""
