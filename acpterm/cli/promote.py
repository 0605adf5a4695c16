"""`acpterm promote`: takes terminals over from their agents."""

import click

from acpterm.cli._daemon import call_each
from acpterm.cli._options import at_daemon
from acpterm.cli._params import terminal_argument


@click.command("promote")
@terminal_argument(many=True)
@at_daemon
def command(terminals: tuple[str, ...], config: str | None, socket: str | None) -> None:
    """Make each TERMINAL yours. There is no way back.

    Its agent can still read what it prints, but no longer type or kill. It stays when the agent
    releases it, and when the agent goes. One that is yours already stays so.

    Exit status: 0 done, 1 for one of them it could not be done, 2 the command line is wrong.
    """
    call_each(config, socket, "promote", terminals)
