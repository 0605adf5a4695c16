"""The providers of Slurm clusters: a program is a step of a job; `srun --pty` runs it on a node.

- `provider`: the provider of one cluster; `program`: the program of one terminal;
- `allocations`: allocations that serve all terminals of a session;
- `commands`: Slurm's commands, such as scancel: their options, their environment and limits;
- `progress`: reads the state of a step from the messages of srun; `job_end`: asks Slurm what ended
  a job;
- `step`: the scripts around srun on this machine, and around the program on the node.
"""
