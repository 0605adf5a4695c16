"""The figures of docs/performance.md: `python -m benchmarks`.

Every figure has a baseline that is measured in the same run, alternating with it, so that other
load on the machine affects both. The daemon is `acpterm serve` with its default settings, as a
separate process, over its Unix socket.
"""
