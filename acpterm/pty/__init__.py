"""PTYs and processes, as the worker uses them; the keeper starts the programs.

- `program`: the specification of a program to start;
- `master`: the master side of one PTY: writes input, sets the size, signals;
- `processes`: finds and signals processes without mistaking a reused pid;
- `signals`: names of signals;
- `linux`: what only Linux has, mostly from `/proc`;
- `tracking/`: which processes belong to a terminal, and how they are killed;
- `input_wait/`: whether a program waits for input.
"""
