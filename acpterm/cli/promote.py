"""`acpterm promote`: take terminals over from their agents."""

import click

from acpterm.acp.user_api import UserTerminalRequest
from acpterm.cli._daemon import ChosenDaemon, at_daemon, end, failures
from acpterm.cli._params import terminal_argument


@click.command("promote")
@terminal_argument(many=True)
@at_daemon
def command(terminals: tuple[str, ...], daemon: ChosenDaemon) -> None:
    """Take each TERMINAL over from its agent. This cannot be undone.

    The terminal is then yours. Its agent can still read the output, but can no longer type into the
    terminal or kill its program. The terminal remains when the agent releases it or disconnects. A
    terminal that is already yours is not changed.

    Exit status: 0 on success, 1 if a terminal could not be taken over, 2 if the command line is
    wrong.
    """
    requests = [UserTerminalRequest(name) for name in dict.fromkeys(terminals)]
    end(daemon.call(lambda client: failures(client, "terminal/promote", requests)))
