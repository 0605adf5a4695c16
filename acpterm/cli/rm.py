"""`acpterm rm`: ends terminals, and forgets what they have printed."""

import click

from acpterm.acp.user_api import ListRequest, ListResponse, TerminalInfo
from acpterm.cli._daemon import call_each, call_running, end, failures
from acpterm.cli._options import at_daemon
from acpterm.cli._params import terminal_argument
from acpterm.client.user.blocking_client import BlockingClient


@click.command("rm")
@terminal_argument(many=True, required=False)
@click.option("--exited", is_flag=True, help="Remove all terminals that have ended.")
@at_daemon
def command(
    terminals: tuple[str, ...], exited: bool, config: str | None, socket: str | None
) -> None:
    """End each TERMINAL as acpterm kill does, and forget what it has printed.

    With --exited it is those that are over: those that were released and are kept, and yours whose
    programs have ended. One whose program has ended but that its agent still holds stays, since
    the agent may be about to read it.

    Exit status: 0 done, 1 for one of them it could not be done, 2 the command line is wrong.
    """
    if exited == bool(terminals):
        raise click.UsageError("say which: TERMINAL…, or --exited, and not both")
    if terminals:
        call_each(config, socket, "release", terminals)
    else:
        end(call_running(config, socket, _remove_all) or [])


def _remove_all(client: BlockingClient) -> list[str]:
    found = client.call("terminal/list", ListRequest(all=True), ListResponse)
    ended = [terminal.terminal_id for terminal in found.terminals if _is_over(terminal)]
    wrong = failures(client, "release", ended)
    if not wrong:
        return []
    # One that is gone meanwhile, as the daemon forgets the oldest by itself, is no failure.
    found = client.call("terminal/list", ListRequest(all=True), ListResponse)
    left = {terminal.terminal_id for terminal in found.terminals}
    return wrong if left.intersection(ended) else []


def _is_over(terminal: TerminalInfo) -> bool:
    return terminal.state == "released" or (terminal.state == "exited" and terminal.owner == "user")
