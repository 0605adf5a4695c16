"""The benchmarks: `python -m benchmarks` measures the figures of internals/performance.md.

A figure is a measured value with its baseline. The baseline is measured in the same run,
alternating with the value, so that other load on the machine affects both. The measured daemon is
`acpterm serve` with default settings, as a separate process, over its Unix socket.

- `figures`: one module per group of figures, with a function `measure`.
- `figure`: a figure and its target. `table`: figures as Markdown and JSON. `page`: writes the
  tables of docs/internals/performance.md and docs/scale.md.
- `processes`: starts the measured daemon and the baselines.
- `client`: the client that measures. `connector`: connects to the agents' socket from a separate
  process.
- `crowd`: many agents at once. `bounds`: limits processes and memory of a large load. `usage`: the
  memory, threads and descriptors of its processes.
- `plain_server`, `bare`, `encode`, `echo_server`: baselines. `poll`, `updates`: load. Each of these
  is run as a process.
"""
