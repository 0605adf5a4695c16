"""`acpterm rm`: remove terminals."""

import click

from acpterm.acp.user_api import ListRequest, ListResponse, TerminalInfo
from acpterm.cli._daemon import ChosenDaemon, at_daemon, end, release
from acpterm.cli._params import terminal_argument
from acpterm.commands.blocking_client import BlockingClient
from acpterm.commands.format import background_number


@click.command("rm")
@terminal_argument(many=True, required=False)
@click.option("--exited", is_flag=True, help="Remove all terminals that have ended.")
@at_daemon
def command(terminals: tuple[str, ...], exited: bool, daemon: ChosenDaemon) -> None:
    """Remove each TERMINAL: end its program as acpterm kill does, and discard its output.

    With --exited all terminals that have ended are removed: retained terminals that were released,
    and yours whose programs have ended and have left nothing running. A terminal that its agent has
    not released is kept even if its program has ended, since the agent may still read the output.

    Exit status: 0 on success, 1 if a terminal could not be removed, 2 if the command line is wrong.
    """
    if exited == bool(terminals):
        raise click.UsageError("say which: TERMINAL…, or --exited, and not both")
    if terminals:
        end(daemon.call(lambda client: release(client, terminals)))
    end(daemon.call_running(_remove_all) or [])


def _remove_all(client: BlockingClient) -> list[str]:
    found = client.call("terminal/list", ListRequest(all=True), ListResponse)
    ended = [terminal.terminal_id for terminal in found.terminals if _is_over(terminal)]
    messages = release(client, ended)
    if not messages:
        return []
    # The daemon itself may have removed terminals since the first list: ignore the errors if none
    # of the terminals to remove is left.
    found = client.call("terminal/list", ListRequest(all=True), ListResponse)
    left = {terminal.terminal_id for terminal in found.terminals}
    return messages if left.intersection(ended) else []


def _is_over(terminal: TerminalInfo) -> bool:
    has_ended = terminal.state == "exited" and not background_number(terminal)
    return terminal.state == "released" or (has_ended and terminal.owner == "user")
