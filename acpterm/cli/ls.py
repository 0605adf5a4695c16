"""`acpterm ls`: list the terminals, once or continuously."""

import click

from acpterm.acp.user_api import ACTIVE, ListRequest, ListResponse, TerminalInfo
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import json_option
from acpterm.cli._output import echo_once, json_text
from acpterm.cli._tables import fitting_text, items, text_of
from acpterm.commands.format import background_number, in_list_order, is_waiting


@click.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Include released terminals.")
@click.option("-r", "--running", is_flag=True, help="List only terminals in which something runs.")
@click.option("--waiting", is_flag=True, help="List only terminals that wait for input.")
@click.option("--agent", metavar="NAME", help="List only an agent's: NAME is in its name.")
@click.option("--session", metavar="ID", help="List only a session's: its id begins with ID.")
@click.option("-q", "--quiet", is_flag=True, help="Print only ids, one per line.")
@click.option("-w", "--watch", "watched", is_flag=True, help="Redraw when something changes.")
@json_option
@at_daemon
def command(
    *,
    everything: bool,
    running: bool,
    waiting: bool,
    agent: str | None,
    session: str | None,
    quiet: bool,
    watched: bool,
    as_json: bool,
    daemon: ChosenDaemon,
) -> None:
    """List the terminals: those that wait for input, the running ones, and those that have ended.

    The newest ones are first. If stdout is a terminal, the list is no longer and no wider than the
    window, except for ids; a line counts what is left out, unless --all is given.

    ID is the shortest unique beginning of the terminal's id; every command accepts it. OWNER is
    agent, or user if the terminal is yours. WHERE is the sandbox, container or place in which the
    program runs, or the directory if that of its session was gone. OUTPUT is the time since the
    last output. STATE says which program waits for input, if one does: "vim waits on
    COMMIT_EDITMSG"; it is "stopped" with the cause if a program is stopped.
    With --all the list includes terminals that their agent has released and that can still be read.

    With --json the list is an array of the daemon's terminal objects; with --watch, one line for
    each change.

    In the list of --watch the arrow keys and j, k, g, G, Page Up and Page Down select a terminal
    and scroll. Enter attaches to it, / filters, Escape clears the filter, and q or Ctrl-C quits.

    If no daemon runs, the list is empty, which is not an error. --watch starts the daemon.

    Exit status: 0 on success, 1 if the daemon cannot be reached or, with --watch, has ended.
    """
    if quiet and (watched or as_json):
        other = "--watch" if watched else "--json"
        raise click.UsageError(f"--quiet prints ids only: leave {other} out")

    def chosen(found: list[TerminalInfo]) -> list[TerminalInfo]:
        return [
            info
            for info in found
            if (info.state in ACTIVE or background_number(info) or not running)
            and (is_waiting(info) or not waiting)
            and (agent is None or agent.casefold() in (info.agent or "").casefold())
            and (session is None or (info.session_id or "").startswith(session))
        ]

    if watched:
        from acpterm.cli._watch import watch  # noqa: PLC0415  it imports trio

        raise SystemExit(watch(daemon, chosen, everything=everything, as_json=as_json))
    request = ListRequest(all=everything)
    response = daemon.request_running("terminal/list", request, ListResponse)
    found = chosen(response.terminals if response else [])
    if as_json:
        echo_once(json_text(found))
    elif not quiet:
        rows = [item.row for item in items(found)]
        echo_once(text_of(rows) if everything else fitting_text(found))
    elif found:
        echo_once("\n".join(info.terminal_id for info in in_list_order(found)))
