"""The providers of Slurm clusters: a program is a step of a job; `srun --pty` runs it on a node."""
