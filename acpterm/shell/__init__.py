"""Persistent shells in which each command has an exact beginning, end, exit code and directory.

- `kind`: how each kind of shell is started, and how it is given a command;
- `bash`, `zsh`, `fish`: rc file and command file of one kind; `posix`: what bash and zsh share;
- `directory`: the private directory through which driver and shell exchange files; the only module
  with I/O;
- `command_marks`: finds the marks that a shell writes into its output;
- `report`: parses the report that a shell writes to a file at the end of each command;
- `tracker`: finds the boundaries of commands by comparing marks and reports.

The driver, which runs a shell in a terminal, is `acpterm.api.shell`.

A command is executed in these steps:

1. The driver writes the command to a file in the private directory, and types one line that sources
   the file (`kind`). It does so only while the shell displays its prompt.
2. The shell marks the beginning of the command's output with ``OSC 133 ; C``.
3. When the command has ended, the shell writes a report with exit code and directory to a file in
   the private directory, and then the mark ``OSC 133 ; D`` with the exit code to its terminal.
4. `tracker` compares report and mark. If one of them is missing, or they differ, the boundary is
   unknown, and there is no exit code.

Marks and reports contain a nonce and the number of the command. The nonce is in no environment and,
once the shell has started, in no file. Other programs therefore do not know it.
"""
