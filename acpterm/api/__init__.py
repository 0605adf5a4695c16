"""The Python API: terminals for programs in Python, on trio and on asyncio (anyio).

`connect` returns a `client`, which returns each `terminal` and each persistent `shell`. Both send
the requests of a role (`roles`), the user's or an agent's, on an endpoint of `acpterm.link`.
"""
