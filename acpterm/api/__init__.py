"""The Python API: terminals for programs in Python, on trio and on asyncio (anyio).

- `connect`: `connect`; `client`: `Client`; `terminal`: `Terminal`; `results`, `errors`: what their
  methods return and raise;
- `shell`: `Shell`, a persistent shell with exact command boundaries; `shell_process`: its process;
  `shell_result`: the result of a command;
- `waiting`: waits for output; `events`: the iterator over events; `questions`: questions to the
  agent's user; `judge`: judgement without a daemon;
- `roles`, `user_role`, `agent_role`: the wire methods of the user and of agents;
- `connection`, `call`: requests on a stream; `transport`: how the stream is opened; `recovery`: how
  it is replaced after a loss; `user_repeats`: requests of the user that are sent again;
- `service`: the terminal service, with exchangeable providers.
"""
