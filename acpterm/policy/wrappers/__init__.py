"""Commands behind other commands: what `env`, `xargs`, `sh -c`, `sudo`, `ssh` or `eval` execute.

- `programs`: which of the following knows a program;
- `prefixes`: programs that execute a command which follows their options;
- `shells`: shells, interpreters, and builtins of a shell that execute text;
- `suspects`: programs whose options are not known, of which every rest of the arguments is tried;
- `unwrapped`: what the others return.
"""
