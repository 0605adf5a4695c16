"""Detection of whether a program waits for input from its terminal.

- `detect`: finds the terminal's threads, and checks whether one waits for the terminal;
- `syscalls`: decodes on which descriptors a thread is blocked;
- `waiter`: names the program that waits, and the file of an editor or pager.
"""
