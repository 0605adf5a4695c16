"""`acpterm ls`: lists the terminals, once or for as long as one looks."""

import time
from functools import partial

import click

from acpterm.acp.person import TerminalInfo
from acpterm.cli.parts.asking import ask, ask_running
from acpterm.cli.parts.options import at_daemon
from acpterm.cli.parts.printing import is_terminal, json_text, say, say_once
from acpterm.cli.parts.quitting import has_keyboard, quiet_keys, until_quit
from acpterm.client.person.front import Front
from acpterm.client.person.listing import Row, row
from acpterm.client.person.names import short_ids
from acpterm.client.person.watched import look_again, terminals
from acpterm.client.person.watching import until_ended
from acpterm.runtime.threads import run_blocking


@click.command("ls")
@click.option("-a", "--all", "everything", is_flag=True, help="Those too that were released.")
@click.option("-w", "--watch", "watched", is_flag=True, help="Draw it again when it changes.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON array.")
@at_daemon
def command(
    everything: bool, watched: bool, as_json: bool, config: str | None, socket: str | None
) -> None:
    """List the terminals, in the order in which they were made.

    ID is the shortest beginning of the id that means this terminal alone; any command takes it.
    OWNER is whose it is, the agent's or yours (user). OUTPUT is how long ago it last printed
    something. What waits for somebody to type says so instead of running. With --all those are
    listed, too, that their agent has released and that can still be read.

    On a terminal the list is cut to its width. With --json it is an array of what the daemon says
    of each, and with --watch a line with such an array for each change.

    Without a daemon there are no terminals: the list is empty, and that is no failure. --watch
    starts it; Ctrl-C or q ends that.

    Exit status: 0 listed, 1 the daemon cannot be asked or, with --watch, has ended.
    """
    if watched:
        raise SystemExit(ask(config, socket, partial(_watch, everything, as_json), start=True))
    found = ask_running(config, socket, partial(terminals, everything=everything)) or []
    say_once(json_text(found) if as_json else _text(found))


def _rows(found: list[TerminalInfo]) -> list[Row]:
    now = time.time()
    short = short_ids([terminal.terminal_id for terminal in found])
    return [row(terminal, short[terminal.terminal_id], now) for terminal in found]


def _text(found: list[TerminalInfo]) -> str:
    from acpterm.cli.parts.tables import text_of  # noqa: PLC0415  rich is slow to import: JSON needs none

    return text_of(_rows(found))


async def _watch(everything: bool, as_json: bool, front: Front) -> int:
    if not as_json and is_terminal():
        from acpterm.cli.parts.watched_screen import watch_screen  # noqa: PLC0415  as above

        return await watch_screen(front, _rows, everything=everything)
    said = ""

    async def show(found: list[TerminalInfo]) -> None:
        nonlocal said
        now = json_text(found) if as_json else f"{_text(found)}\n"
        if now != said:
            said = now
            await run_blocking(partial(say, now), abandon_on_cancel=True)

    look = partial(look_again, front, show, everything=everything)
    if not has_keyboard():
        return await until_ended(look)
    with quiet_keys():
        return await until_ended(partial(until_quit, look))
