"""`acpterm kill`: ends the programs of terminals."""

import click

from acpterm.cli.parts.each import do_to_each
from acpterm.cli.parts.options import at_daemon
from acpterm.cli.parts.terminal_name import terminal_argument


@click.command("kill")
@terminal_argument(many=True)
@at_daemon
def command(terminals: tuple[str, ...], config: str | None, socket: str | None) -> None:
    """End the program of each TERMINAL, and all that it has started.

    They get SIGTERM, and SIGKILL if they are still there after a moment (kill_grace). What they
    have printed can still be read; acpterm rm removes that, too. A program that has ended already
    is none to end, and no failure.

    Exit status: 0 done, 1 for one of them it could not be done, 2 the command line is wrong.
    """
    do_to_each(config, socket, "kill", terminals)
