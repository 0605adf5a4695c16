"""`acpterm rename`: rename a terminal."""

import click

from acpterm.acp.user_api import RenameRequest, TerminalInfo
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import check_utf8
from acpterm.cli._params import terminal_argument


@click.command("rename")
@terminal_argument()
@click.argument("name")
@at_daemon
def command(terminal: str, name: str, daemon: ChosenDaemon) -> None:
    """Rename TERMINAL to NAME.

    A name has at most 64 printable characters, does not begin with @, - or term_, and is not a
    number of 8 or more hexadecimal digits. Two running terminals never have the same name.

    Exit status: 0; 1 if there is no such terminal or NAME is invalid or in use.
    """
    check_utf8(name)
    daemon.request("terminal/rename", RenameRequest(terminal, name), TerminalInfo)
