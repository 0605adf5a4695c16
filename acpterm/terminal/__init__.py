"""The worker's terminals: their output, input, exit status and screen.

- `pool`: creates, adopts, runs and finds all terminals of the worker;
- `spec`: the parameters with which the pool creates a terminal;
- `terminal`: one terminal, from its program's start until all its processes have ended;
- `remote`: the interface of a program that runs on another host than its terminal;
- `consumer`: feeds a ring's output to text, emulator and timeline;
- `shared_ring`: a ring that the keeper fills and the consumer empties, in a file that both map;
- `private_ring`: a ring in this process's own memory, for the terminals that agents run themselves;
  and `Slice`, the result of a read of either ring;
- `keyboard`: types input into the terminal, in order;
- `timeline`: when each part of the output came, and when the terminal size changed;
- `views`: reads parts of the output from a position on, as text or raw;
- `status`: how the program ended;
- `text/`: output as plain text, without escape sequences;
- `vt/`: the terminal emulator, its screen and its replies.
"""
