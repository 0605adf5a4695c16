"""`acpterm events`: print events as they happen, one per line."""

import click
from msgspec import Raw

from acpterm.acp.user_streams import EventNotification
from acpterm.cli._async import call_async, echo_async
from acpterm.cli._daemon import ChosenDaemon, at_daemon
from acpterm.cli._options import json_option
from acpterm.cli._output import json_line, row_line
from acpterm.commands.client import UserClient
from acpterm.commands.events import event_row, follow, until_ended

_COLOURS = {
    "created": "green",
    "exited": "cyan",
    "killed": "red",
    "waiting": "yellow",
    "stopped": "red",
}


@click.command("events")
@json_option
@at_daemon
def command(as_json: bool, daemon: ChosenDaemon) -> None:
    """Print events as they happen, one per line.

    Each line has the time, the event, the terminal, its owner, the agent and its session, and
    details. With --json each line has the params of the notification _acpterm/event.

    After the daemon's worker was replaced, events may be missing. The event "reconnected" marks
    this; in JSON it has only the members "token", "event" and "at".

    The daemon is started if it is not running. Ctrl-C stops this command.

    Exit status: 0 after Ctrl-C, or if the output has no reader any more; 1 if the daemon has ended.
    """

    async def print_event(event: EventNotification, params: Raw) -> None:
        if as_json:
            text = json_line(params)
        else:
            row = event_row(event)
            text = row_line(row, _COLOURS.get(row.event))
            if event.lost:
                text = f"{event.lost} events before this one were too many and were dropped\n{text}"
        await echo_async(text)

    async def work(client: UserClient) -> int:
        return await until_ended(lambda: follow(client, print_event))

    raise SystemExit(call_async(daemon, work, start=True))
