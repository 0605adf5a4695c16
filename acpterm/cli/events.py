"""`acpterm events`: print events as they happen, one per line."""

from functools import partial

import click
from msgspec import Raw

from acpterm.acp.user_streams import EventNotification
from acpterm.cli._async import call_async
from acpterm.cli._options import at_daemon
from acpterm.cli._output import echo, is_colour_wanted, is_terminal, json_line
from acpterm.client.user.client import UserClient
from acpterm.client.user.events import EventRow, event_row, follow, until_ended
from acpterm.client.user.output.blocking_stdout import window_size
from acpterm.runtime.threads import run_blocking

_COLOURS = {
    "created": "green",
    "exited": "cyan",
    "killed": "red",
    "waiting": "yellow",
    "stopped": "red",
}


@click.command("events")
@click.option("--json", "as_json", is_flag=True, help="Print JSON objects, one per line.")
@at_daemon
def command(as_json: bool, config: str | None, socket: str | None) -> None:
    """Print events as they happen, one per line.

    Each line has the time, the event, the terminal's id and name, its owner, the agent and its
    session. The end of the line depends on the event: for example the command, its exit status, or
    the agent's tool call. With --json each line has the params of the daemon's notification
    _acpterm/event.

    After the daemon's worker was replaced, events may be missing. The event "reconnected" marks
    this; in JSON it has only the members "token", "event" and "at".

    The daemon is started if it is not running. Ctrl-C stops this command.

    Exit status: 0 after Ctrl-C, or if the output has no reader any more; 1 if the daemon has ended.
    """
    colours = is_colour_wanted()

    async def print_event(event: EventNotification, params: Raw) -> None:
        if as_json:
            text = json_line(params)
        else:
            text = _line(event_row(event), colours=colours)
            if event.lost:
                text = f"{event.lost} events before this one were too many and were dropped\n{text}"
        # Print in a thread, so that Ctrl-C works while a slow reader blocks the write.
        await run_blocking(partial(echo, text), abandon_on_cancel=True)

    async def work(client: UserClient) -> int:
        return await until_ended(lambda: follow(client, print_event))

    raise SystemExit(call_async(config, socket, work, start=True))


def _line(row: EventRow, *, colours: bool) -> str:
    # On a terminal, cut the row to one line. A pipe gets all of it.
    text = row.text(window_size()[0] if is_terminal() else None)
    if not colours or row.event not in _COLOURS:
        return text
    return text.replace(row.event, click.style(row.event, fg=_COLOURS[row.event]), 1)
