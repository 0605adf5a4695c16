"""Persistent shells in which each command has an exact beginning, end, exit code and directory.

Only `directory` has I/O. `kind` describes bash, zsh and fish; `marks` finds the marks of a shell in
its output; `record` parses what a shell reports beside its output; and `tracker` combines both. The
driver, which runs a shell in a terminal, is `acpterm.api.shell`.

The way of a command:

1. The driver writes the command to a file in a private directory, and types one line that sources
   the file (`kind`). It does so only while the shell displays its prompt.
2. The shell marks the beginning of the command's output with ``OSC 133 ; C``.
3. When the command has ended, the shell writes a record with exit code and directory to a file of
   that directory, and then the mark ``OSC 133 ; D`` with the exit code to its terminal.
4. `tracker` compares record and mark. If one of them is missing, or they differ, the boundary is
   unknown, and there is no exit code.

Marks and records carry a nonce and the number of the command. The nonce is in no environment and,
once the shell has started, in no file. Other programs therefore do not know it.
"""
