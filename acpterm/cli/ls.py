"""`acpterm ls`: lists the terminals, once or while they are watched."""

import click

from acpterm.acp.user_api import ListRequest, ListResponse, TerminalInfo
from acpterm.cli._daemon import call_running
from acpterm.cli._options import at_daemon
from acpterm.cli._output import echo_once, json_text
from acpterm.cli._tables import items, text_of
from acpterm.client.user.format import in_list_order


@click.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Include released terminals.")
@click.option("-r", "--running", is_flag=True, help="Only terminals whose program runs.")
@click.option("-q", "--quiet", is_flag=True, help="Print ids only, a line each.")
@click.option("-w", "--watch", "watched", is_flag=True, help="Redraw when something changes.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@at_daemon
def command(
    *,
    everything: bool,
    running: bool,
    quiet: bool,
    watched: bool,
    as_json: bool,
    config: str | None,
    socket: str | None,
) -> None:
    """List the terminals: those that run first, then by their age.

    ID is the shortest beginning of the id that means this terminal alone; any command takes it.
    OWNER is whose it is, the agent's or yours (user). OUTPUT is how long ago it last printed
    something. What waits for somebody to type says so instead of running. With --all those are
    listed, too, that their agent has released and that can still be read.

    On a terminal the list is cut to its width, but for the ID. With --json it is an array of what
    the daemon says of each, and with --watch a line with such an array for each change.

    In the list of --watch the arrow keys and j, k, g, G, Page Up and Page Down select a terminal
    and scroll; Enter attaches to it, / filters, Escape shows all again, and q or Ctrl-C ends it.

    Without a daemon there are no terminals: the list is empty, and that is no failure. --watch
    starts it.

    Exit status: 0 listed, 1 the daemon cannot be asked or, with --watch, has ended.
    """
    if quiet and (watched or as_json):
        other = "--watch" if watched else "--json"
        raise click.UsageError(f"--quiet prints ids only: leave {other} out")

    def chosen(found: list[TerminalInfo]) -> list[TerminalInfo]:
        return [one for one in found if one.state == "running" or not running]

    if watched:
        from acpterm.cli._watch import watch  # noqa: PLC0415  it imports trio

        raise SystemExit(watch(config, socket, chosen, everything=everything, as_json=as_json))
    request = ListRequest(all=everything)
    answer = call_running(
        config, socket, lambda client: client.call("terminal/list", request, ListResponse)
    )
    found = chosen(answer.terminals if answer else [])
    if not quiet:
        echo_once(json_text(found) if as_json else text_of([item.row for item in items(found)]))
    elif found:
        echo_once("\n".join(one.terminal_id for one in in_list_order(found)))
