"""`acpterm resize`: resize a terminal."""

import click

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import UserResizeRequest
from acpterm.cli._daemon import call
from acpterm.cli._options import at_daemon
from acpterm.cli._params import Size, terminal_argument


@click.command("resize")
@terminal_argument(running=True)
@click.argument("size", metavar="COLSxROWS", type=Size())
@at_daemon
def command(terminal: str, size: tuple[int, int], config: str | None, socket: str | None) -> None:
    """Resize TERMINAL to COLSxROWS, such as 120x40.

    While windows that can type are attached, the terminal has the minimum of their columns and the
    minimum of their rows. It gets the given size when the last of them detaches.

    Exit status: 0; 1 if there is no such terminal or its program has ended; 2 for an invalid size.
    """
    request = UserResizeRequest(terminal, *size)
    call(config, socket, lambda client: client.call("terminal/resize", request, Empty))
