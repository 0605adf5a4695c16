"""The provider `slurm`: a program is a step of a job, which `srun --pty` runs on a node.

- `provider`: the provider of one cluster; `program`: the program of one terminal;
- `allocations`: allocations that serve the terminals of a session;
- `commands`: Slurm's commands and their options; `progress`: what srun's messages say;
- `step`: the scripts around srun and on the node.
"""
