"""`acpterm ls`: lists the terminals, once or while they are watched."""

import time
from collections.abc import Callable
from functools import partial
from typing import TypeAlias

import click

from acpterm.acp.user_api import TerminalInfo
from acpterm.cli._daemon import call, call_running
from acpterm.cli._keyboard import has_keyboard, quiet_keys, until_quit
from acpterm.cli._options import at_daemon
from acpterm.cli._output import echo, echo_once, is_terminal, json_text
from acpterm.cli.attach import detaching_keys
from acpterm.client.user.attach.detach_keys import DetachFilter
from acpterm.client.user.client import UserClient
from acpterm.client.user.completion import short_ids
from acpterm.client.user.events import until_ended
from acpterm.client.user.format import in_list_order, row
from acpterm.client.user.list_view import Item
from acpterm.client.user.watched import refresh, terminals
from acpterm.runtime.threads import run_blocking

_Chosen: TypeAlias = Callable[[list[TerminalInfo]], list[TerminalInfo]]


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
        keys = detaching_keys(config, socket)
        watch = partial(_watch, everything=everything, as_json=as_json, chosen=chosen, keys=keys)
        raise SystemExit(call(config, socket, watch, start=True))
    found = chosen(call_running(config, socket, partial(terminals, everything=everything)) or [])
    if not quiet:
        echo_once(json_text(found) if as_json else _text(found))
    elif found:
        echo_once("\n".join(one.terminal_id for one in in_list_order(found)))


def _items(found: list[TerminalInfo]) -> list[Item]:
    now = time.time()
    short = short_ids([terminal.terminal_id for terminal in found])
    return [
        Item(one.terminal_id, row(one, short[one.terminal_id], now)) for one in in_list_order(found)
    ]


def _text(found: list[TerminalInfo]) -> str:
    from acpterm.cli._tables import text_of  # noqa: PLC0415  rich is slow to import: JSON needs none

    return text_of([item.row for item in _items(found)])


async def _watch(
    client: UserClient, *, everything: bool, as_json: bool, chosen: _Chosen, keys: DetachFilter
) -> int:
    if not as_json and is_terminal():
        from acpterm.cli._watch import watch_screen  # noqa: PLC0415  as above

        return await watch_screen(
            client, lambda found: _items(chosen(found)), keys, everything=everything
        )
    said = ""

    async def show(found: list[TerminalInfo]) -> None:
        nonlocal said
        found = chosen(found)
        now = json_text(found) if as_json else f"{_text(found)}\n"
        if now != said:
            said = now
            await run_blocking(partial(echo, now), abandon_on_cancel=True)

    look = partial(refresh, client, show, everything=everything)
    if not has_keyboard():
        return await until_ended(look)
    with quiet_keys():
        return await until_ended(partial(until_quit, look))
