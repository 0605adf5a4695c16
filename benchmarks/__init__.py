"""The figures of docs/performance.md: `python -m benchmarks`.

Every figure stands beside a baseline that is measured in the same run, in turns with it, so that
whatever else the machine does happens to both. The daemon is measured as its users have it:
`acpterm serve` with its default settings, a process of its own, over its Unix socket.
"""
