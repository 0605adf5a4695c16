"""The keeper: a small process that owns programs, PTYs and output, and outlives the worker.

The keeper process (`__main__`) and what it imports use the standard library alone. `client` is the
worker's end and the one module here that uses trio. `protocol` and `ring` belong to both.
"""
