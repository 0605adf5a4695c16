"""The benchmarks: `python -m benchmarks` measures the figures of docs/performance.md.

A figure is a measured value with its baseline. The baseline is measured in the same run,
alternating with the value, so that other load on the machine affects both. The measured daemon is
`acpterm serve` with default settings, as a separate process, over its Unix socket.

- `figures`: one module per group of figures, with a function `measure`.
- `figure`: a figure and its target. `table`: figures as Markdown and JSON. `page`: writes the
  tables of docs/performance.md and docs/scale.md.
- `processes`: starts the measured daemon and the baselines.
- `client`: the client that measures. `connector`: connects it from another process.
- `crowd`: many agents. `bounds`: bounds of a large load. `usage`: what its processes use.
- `plain_server`, `bare`, `encode`, `echo_server`: baselines, run as processes. `poll`, `updates`:
  load, likewise.
"""
