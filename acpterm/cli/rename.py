"""`acpterm rename`: rename a terminal."""

import click

from acpterm.acp.user_api import RenameRequest, TerminalInfo
from acpterm.cli._daemon import call
from acpterm.cli._options import at_daemon, fail
from acpterm.cli._params import terminal_argument
from acpterm.jsonrpc import is_utf8_encodable


@click.command("rename")
@terminal_argument()
@click.argument("name")
@at_daemon
def command(terminal: str, name: str, config: str | None, socket: str | None) -> None:
    """Rename TERMINAL to NAME.

    A name has at most 64 printable characters, does not begin with @, - or term_, and is not a
    number of 8 or more hexadecimal digits. Two running terminals never have the same name.

    Exit status: 0; 1 if there is no such terminal or NAME is invalid or in use.
    """
    if not is_utf8_encodable(name):
        fail(f"{name!r} is not UTF-8: no terminal can have that name")

    request = RenameRequest(terminal, name)
    call(config, socket, lambda client: client.call("terminal/rename", request, TerminalInfo))
