"""Finds the commands that a command executes: those of `env`, `xargs`, `sh -c`, `sudo` or `eval`.

A program that executes other commands is a *wrapper*.

- `programs`: the entry point, which selects one of the following by the name of the program;
- `prefixes`: programs that execute the command that follows their options;
- `shells`: shells, interpreters, and builtins of a shell that execute text;
- `suspects`: wrappers whose options are not known here, such as `ssh`: the command may begin at any
  argument, so each possibility is tried;
- `unwrapped`: the types that the others return.
"""
