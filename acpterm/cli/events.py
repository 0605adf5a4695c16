"""`acpterm events`: prints everything that happens, a line each."""

from functools import partial

import click
from msgspec import Raw

from acpterm.acp.user_streams import EventNotification
from acpterm.cli._async import call_async
from acpterm.cli._options import at_daemon
from acpterm.cli._output import echo, is_colour_wanted, is_terminal, json_text, window
from acpterm.client.user.client import UserClient
from acpterm.client.user.event_format import EventRow, event_row
from acpterm.client.user.events import follow, until_ended
from acpterm.runtime.threads import run_blocking

_COLOURS = {"created": "green", "exited": "cyan", "killed": "red", "waiting": "yellow"}


@click.command("events")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one a line.")
@at_daemon
def command(as_json: bool, config: str | None, socket: str | None) -> None:
    """Print everything that happens from now on, a line each.

    A line has the time, what happened, the terminal's id and name, its owner, the agent and its
    session, and the command, how it ended, or the agent's tool call. With --json a line is what
    the daemon tells, _acpterm/event.

    When the daemon's worker was replaced, events may be missing: the event "reconnected" says
    so, in JSON with token, event and at alone.

    The daemon is started if it is not running. Ctrl-C ends it.

    Exit status: 0 it was ended so, or nobody reads what it prints; 1 the daemon has ended.
    """
    colours = is_colour_wanted()

    async def take(event: EventNotification, params: Raw) -> None:
        if as_json:
            text = json_text(params)
        else:
            text = _line(event_row(event), colours=colours)
            if event.lost:
                text = f"{event.lost} events before this one were too many to be told\n{text}"
        # In a thread, so that Ctrl-C ends it when a reader holds it up.
        await run_blocking(partial(echo, text), abandon_on_cancel=True)

    async def work(client: UserClient) -> int:
        return await until_ended(lambda: follow(client, take))

    raise SystemExit(call_async(config, socket, work, start=True))


def _line(what: EventRow, *, colours: bool) -> str:
    # On a terminal a line is to stay one; who wants all of it has it from a pipe.
    text = what.text(window()[0] if is_terminal() else None)
    if not colours or what.event not in _COLOURS:
        return text
    return text.replace(what.event, click.style(what.event, fg=_COLOURS[what.event]), 1)
