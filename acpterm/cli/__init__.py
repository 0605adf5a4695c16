"""The command line. One module per command: it parses, calls `commands` or `agents`, and prints.

To add a command, write a module with a click command named `command`, and add a line to `GROUPS` in
`main.py`. docs/internals/HACKING.md, "The map of a change", lists the tests and pages to extend.
Names with an underscore are shared by commands.

Docstrings of functions named `command` are the commands' help, from which docs/ is generated.
"""

from acpterm.cli.main import main

__all__ = ["main"]
