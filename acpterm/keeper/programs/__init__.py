"""The keeper's terminals: programs on PTYs, from their start to their exit, and their output.

- `terminals`: all terminals; `terminal`: one terminal and its states;
- `spawn`: starts a program on a new PTY; `leader`: the leader of its session;
  `child`: the code that runs in a forked child before its program is executed;
- `reading`: reads PTYs into rings; `decoding`: output that is not UTF-8;
- `reaping`: detects that a program has ended, reaps its process, and reports the exit;
- `shutdown`: kills all programs;
- `system`: system calls that Python has no function for.
"""
