"""Follows the daemon's events, and uses them to keep a list of terminals up to date.

A command that follows events exits with status 0 on Ctrl-C, with 128 + N on another shutdown signal
N, and with status 0 once stdout has no reader, such as in a pipe to `head`.
"""

import math
import signal
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any, Final, NamedTuple

import msgspec
import trio
from msgspec import Raw, ValidationError
from msgspec.json import decode, encode

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import ListRequest, ListResponse, TerminalInfo
from acpterm.acp.user_streams import EventNotification, EventsRequest
from acpterm.commands.client import UserClient
from acpterm.commands.format import (
    NOTHING,
    background,
    background_line,
    cut,
    duration,
    ended,
    ended_by,
    summary_line,
)
from acpterm.commands.output.trio_stdout import while_stdout_is_read
from acpterm.link.errors import LostError
from acpterm.runtime.sanitize import one_line
from acpterm.runtime.shutdown_signals import shutdown_signals

RECONNECTED: Final = "reconnected"
"""Name of the event that tells that the worker was replaced. The daemon does not send it."""
# Hexadecimal digits that are shown of a terminal's id. The number is fixed, since the ids of later
# lines are not known yet.
_ID: Final = 8
# Maximum length of the name of an agent, session or terminal, in characters.
_WHO: Final = 24
# Width of the columns for the event and the owner: the longest word in each.
_EVENT: Final = 12
_OWNER: Final = 5


class EventRow(NamedTuple):
    """The columns of an event in `acpterm events`, in order; safe to print."""

    time: str
    event: str
    terminal: str
    owner: str
    who: str
    """The agent's name (if it has none, the id of its connection), and the session's id."""
    what: str
    """Details that depend on the event, such as the exit status or the command."""

    def text(self, most: int | None = None) -> str:
        event, terminal = self.event.ljust(_EVENT), self.terminal.ljust(_ID)
        owner = self.owner.ljust(_OWNER)
        line = f"{self.time}  {event}  {terminal}  {owner}  {self.who}  {self.what}".rstrip()
        return cut(line, most)


def event_row(event: EventNotification) -> EventRow:
    terminal = event.terminal
    short = NOTHING
    if terminal is not None:
        short = summary_line(terminal.terminal_id.removeprefix("term_")[:_ID])
        if terminal.name:
            short = f"{short} {one_line(terminal.name, _WHO)}"
    return EventRow(
        time=time.strftime("%H:%M:%S", time.localtime(event.at / 1000)),
        event=one_line(event.event, _EVENT),
        terminal=short,
        owner=terminal.owner if terminal else NOTHING,
        who=_who(event),
        what=_what(event),
    )


def _who(event: EventNotification) -> str:
    words = [
        one_line(word, _WHO) for word in (event.agent or event.connection, event.session_id) if word
    ]
    return " ".join(words) or NOTHING


def _what(event: EventNotification) -> str:
    terminal = event.terminal
    if terminal is None:
        return _without_terminal(event)
    if event.event == "exited" and terminal.exit_status is not None:
        status = terminal.exit_status
        words = f"{ended(status)} after {duration(status.wall_ms / 1000)}"
        return words if status.ended_by == "exited" else f"{words}  ({ended_by(status)})"
    if event.event == "background":
        left = ", ".join(map(background_line, background(terminal)))
        return f"still running: {left}" if left else "nothing is running any more"
    if event.event in ("attached", "detached"):
        return f"{terminal.attached} attached"
    if event.event == "resized":
        return f"{terminal.cols}x{terminal.rows}"
    command, why = one_line(terminal.command), event.by and f"by {event.by}"
    if event.event == "waiting":
        why = terminal.waiting_program or None
    return f"{command}  ({summary_line(why)})" if why else command


def _without_terminal(event: EventNotification) -> str:
    if event.event == "tool_call":
        return _tool_call(event.update)
    if event.event == RECONNECTED:
        return "the daemon's worker was replaced: events may be missing"
    return ""


def _tool_call(update: Any) -> str:
    if isinstance(update, msgspec.Raw):
        update = msgspec.json.decode(update)
    if not isinstance(update, Mapping):
        return ""
    title, status, call = (update.get(name) for name in ("title", "status", "toolCallId"))
    words = [str(title)] if title else [f"call {call}"]
    if isinstance(status, str):
        words.append(f"[{status}]")
    return one_line(" ".join(words))


# Seconds that `refresh` waits after each refresh, so that a burst of events causes only one more.
_PAUSE_S: Final = 0.1


async def until_ended(work: Callable[[], Awaitable[object]]) -> int:
    """Run `work` until a shutdown signal, or until stdout has no reader; return the exit status."""
    status = 0

    async def watch_signals() -> None:
        nonlocal status
        with trio.open_signal_receiver(*shutdown_signals()) as signals:
            started.set()
            async for number in signals:
                status = 0 if number == signal.SIGINT else 128 + number
                nursery.cancel_scope.cancel()

    started = trio.Event()
    async with while_stdout_is_read(), trio.open_nursery() as nursery:
        nursery.start_soon(watch_signals)
        await started.wait()
        await work()
        nursery.cancel_scope.cancel()
    return status


async def follow(
    client: UserClient,
    take: Callable[[EventNotification, Raw], Awaitable[object]],
    *,
    task_status: trio.TaskStatus[None] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Await `take` for each event and `RECONNECTED`, decoded and as raw JSON, until cancelled."""
    request = EventsRequest(client.token())
    is_reconnected = False
    while True:
        with client.stream("events", request, Empty) as stream:
            if is_reconnected:
                event = EventNotification(request.token, RECONNECTED, round(1000 * time.time()))
                await take(event, Raw(encode(event)))
            else:
                task_status.started()
            try:
                async for params in stream:
                    # A newer daemon may send an event that this command cannot decode.
                    with suppress(ValidationError):
                        await take(decode(params, type=EventNotification), params)
            except LostError:
                await client.reconnect(stream.endpoint)
                is_reconnected = True


async def refresh(
    client: UserClient,
    show: Callable[[list[TerminalInfo]], Awaitable[object]],
    *,
    everything: bool,
    every: float = math.inf,
) -> None:
    """Await `show` with the list of terminals: at once, after events, and each `every` seconds."""
    is_current, happened = False, trio.lowlevel.ParkingLot()
    request = ListRequest(all=everything)

    async def note(event: EventNotification, params: Raw) -> None:
        nonlocal is_current
        del event, params
        is_current = False
        happened.unpark_all()
        await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        # Otherwise, a change between the list and the first event would be missed.
        await nursery.start(follow, client, note)
        while True:
            is_current = True
            answer = await client.call("terminal/list", request, ListResponse)
            await show(answer.terminals)
            await trio.sleep(_PAUSE_S)
            with trio.move_on_after(every - _PAUSE_S):
                while is_current:
                    await happened.park()
