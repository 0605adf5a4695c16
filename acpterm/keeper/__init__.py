"""The keeper: a small process that owns programs, PTYs and output, and outlives the worker.

- `__main__`, `process/` and `programs/` are the keeper process, of the standard library alone.
- `client` is what a worker imports; `keeper_client`, `connection`, `wakeups` and `reports` are its
  parts, and the only modules here that use trio.
- `protocol` and `ring` are what both sides share.
"""
