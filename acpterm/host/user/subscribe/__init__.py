"""Subscriptions to sessions: a client is sent a session's tool calls and their terminals' output.

- `subscriber`: one subscription: decides what is sent next, and sends it.
- `backlog`: the updates of tool calls that wait to be sent.
- `terminal_cursor`: how much of one terminal's output was sent.
- `sources`: the terminals to read output from: the host's, the agent's own, and tombstones.
- `encoders`: encode updates in the format that the client has requested.
- `content`: makes the content of tool calls valid, and converts it to ACP v2.
"""
