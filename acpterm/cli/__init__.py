"""The command line. One module per command: it parses arguments, calls `client`, and prints.

To add a command, write a module with a click command named `command`, and add a line to `_COMMANDS`
in `main.py`. docs/internals/HACKING.md, "The map of a change", lists the tests and pages to extend.

- `main`: the group of all commands, which imports a command's module when the command is used.
- `_options`: options that several commands share, loading of the settings, and `fail`. `_params`:
  parameter types. `_mcp`: the options of the MCP server that `proxy --mcp` and `prompt --mcp` add
  to sessions.
- `_daemon`: connects to the daemon and sends requests, for most commands. `_async`: the same in
  trio.
- `_output`: prints on stdout. `_tables`: the table of terminals.
- `_run_attached`: `run` without -d. `_watch`: `ls --watch`. `_answering`: `approve` and `deny`.
  `_version`: `--version`.

Docstrings of functions named `command` are the commands' help, from which docs/ is generated.
"""

from acpterm.cli.main import main

__all__ = ["main"]
