"""The providers: they run a terminal's program locally, in a sandbox or container, or elsewhere.

A provider turns a command into the argv that the keeper runs, and cleans up when the terminal has
closed. `provider` is the interface, `registry` creates a provider by its name. `ssh` and `slurm`
are *places*: other hosts and clusters.
"""
