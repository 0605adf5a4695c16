"""Launching a terminal: from the params of a create request to a running program.

- `launch`: a terminal from the request to the record, and what starts it.
- `command`: decides whether a command is a program or text for a shell.
- `environment`: the environment and the resource limits of the program.
- `placement`: where the program runs: chooses the provider, and prepares the program with it.
- `validation`: checks the values of a request, with helpful errors.
"""
