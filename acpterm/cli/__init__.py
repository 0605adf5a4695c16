"""The command line: one module per command, which parses arguments, calls and prints."""

from acpterm.cli.main import main

__all__ = ["main"]
