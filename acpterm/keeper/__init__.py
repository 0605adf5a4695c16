"""The keeper: a small process that owns programs, PTYs and output, and outlives the worker.

`process/` and `programs/` run in the keeper, which imports only the standard library (and
ptyprocess on systems other than Linux). `protocol`, `ring_file` and `encodings` are for keeper and
worker. The rest is for the worker, on trio: `startup` starts a keeper, `client` is the connection.
"""
