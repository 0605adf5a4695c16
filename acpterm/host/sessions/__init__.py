"""The parts of an agent's session that both `host.agent` and `host.user` use.

- `observed`: the interface of a session for the user's side.
- `tool_calls`: the session's tool calls, retained for clients that subscribe later.
- `agent_terminals`: the terminals that the agent runs itself and describes in session updates.
"""
