"""The figures of docs/performance.md: `python -m benchmarks`.

The rule: every figure stands beside a baseline that was measured in the same run, in turns with
it, so that what the machine is doing meanwhile happens to both. The host is measured as its users
have it: `acpterm serve` with its default settings, a process of its own, over its Unix socket.
"""
