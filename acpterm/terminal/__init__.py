"""The worker's terminals: their output, input, exit status and screen.

- `pool`: creates, adopts, runs and finds all terminals of the worker;
- `terminal`: one terminal, from its program's start until all its processes have ended;
- `consumer`: feeds a ring's output to text, emulator and timeline; queries of the program are
  answered once, also after a take-over;
- `shared_ring`: the ring file that the keeper fills and the consumer empties;
- `ring`: a ring in this process's own memory, and `Slice`, the result of a read of either ring;
- `keyboard`: types input into the terminal, in order;
- `timeline`: when each part of the output came, and when the terminal size changed;
- `views`: output as clients read it, as text or raw;
- `status`: how the program ended;
- `text/`: output as plain text, without escape sequences;
- `vt/`: the terminal emulator, its screen and its replies.
"""
