"""The keeper: a small process that owns programs, PTYs and output, and outlives the worker.

- `__main__`, `process/` and `programs/` are the keeper process. They import only the standard
  library (and ptyprocess, where the system is not Linux).
- `client` is what a worker imports. It consists of `keeper_client`, `pending_requests`,
  `connection` and `reports`, the only modules here that use trio.
- `protocol` and `ring` are shared by both sides.
"""
