"""PTYs and processes, as the worker uses them; the keeper starts the programs.

- `program`: the specification of a program to start;
- `limits`: the resource limits of a terminal's programs, as data;
- `master`: the master side of one PTY: writes input, sets the size, signals the foreground group;
- `processes`: finds and signals processes without mistaking a reused pid;
- `signals`: names of signals;
- `linux`: features that only Linux has, mostly information from `/proc`;
- `tracking/`: finds the processes that belong to a terminal, and ends them for kill and release;
- `input_wait/`: detects whether a program waits for input.
"""
