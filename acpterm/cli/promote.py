"""`acpterm promote`: take terminals over from their agents."""

import click

from acpterm.cli._daemon import call_each
from acpterm.cli._options import at_daemon
from acpterm.cli._params import terminal_argument


@click.command("promote")
@terminal_argument(many=True)
@at_daemon
def command(terminals: tuple[str, ...], config: str | None, socket: str | None) -> None:
    """Take each TERMINAL over from its agent. This cannot be undone.

    The terminal is then yours. Its agent can still read the output, but can no longer type into the
    terminal or kill its program. The terminal remains when the agent releases it or disconnects. A
    terminal that is already yours is not changed.

    Exit status: 0 on success, 1 if a terminal could not be taken over, 2 if the command line is
    wrong.
    """
    call_each(config, socket, "promote", terminals)
