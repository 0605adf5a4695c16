"""`acpterm resize`: resize a terminal."""

import click

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import UserResizeRequest
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._params import as_size, terminal_argument


@click.command("resize")
@terminal_argument(running=True)
@click.argument("size", metavar="COLSxROWS", type=as_size)
@at_daemon
def command(terminal: str, size: tuple[int, int], daemon: ChosenDaemon) -> None:
    """Resize TERMINAL to COLSxROWS, such as 120x40.

    While windows that can type are attached, the terminal has the minimum of their columns and the
    minimum of their rows. It gets the given size when the last of them detaches.

    Exit status: 0; 1 if there is no such terminal or its program has ended; 2 for an invalid size.
    """
    daemon.request("terminal/resize", UserResizeRequest(terminal, *size), Empty)
