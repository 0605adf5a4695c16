"""One module per group of figures, each with a function `measure(quick=…)` that returns them.

`quick` takes fewer samples, to check that the benchmarks work.

- `create`: creating and releasing a terminal. `burst`: many creates at once.
- `notice`: how soon a client learns of an exit.
- `throughput`: a flood through one terminal. `floods`: through many. `watched`: with viewers.
- `output`: reading a full buffer. `quiet`: latency of a quiet terminal beside floods.
- `memory`: memory per terminal. `takeover`: replacement of the worker.
- `shell`: overhead of a command in a persistent shell.
- `policy`: what judgement, audit log and sandbox add to a create.
- `ssh`, `slurm`: a terminal on another host. `scale`: hundreds of such terminals.
- `proxy`: latency and memory of `acpterm proxy`. `startup`: run time of short commands.
- `web`: the page in a browser.
"""
