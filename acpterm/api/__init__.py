"""The Python API: terminals for programs in Python, on trio and on asyncio (anyio).

- `client`: `connect` and `Client`; `terminal`: `Terminal`; `results`, `errors`: what they return
  and raise;
- `shell`: `Shell`, a persistent shell with exact command boundaries; `shell_process`: its start;
- `waiting`: waits for output; `events`: the iterator over events;
- `roles`: the wire methods of the user and of agents;
- `connection`, `transport`: requests on a stream, and how it is opened and replaced.
"""
