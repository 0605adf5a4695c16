"""Formats the daemon's events as lines of text, for `acpterm events`."""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from acpterm.acp.user_streams import EventNotification
from acpterm.client.sanitize import one_line
from acpterm.client.user.format import (
    background,
    background_line,
    duration,
    ended,
    ended_by,
    summary_line,
)

RECONNECTED: Final = "reconnected"
"""Name of the event which reports that the daemon's worker was replaced. The module `events`
creates this event; the daemon does not send it."""
# Hexadecimal digits that are shown of a terminal's id. The number is fixed, since the ids of later
# lines are not known yet.
_ID: Final = 8
# Maximum length of the name of an agent, session or terminal, in characters.
_WHO: Final = 24
# Width of the columns for the event and the owner: the longest word in each.
_EVENT: Final = 12
_OWNER: Final = 5
_NONE: Final = "-"


class EventRow(NamedTuple):
    """The columns of an event in `acpterm events`, in order. The text of each is safe to print."""

    time: str
    event: str
    terminal: str
    owner: str
    who: str
    """The agent's name (if it has none, the id of its connection), and the session's id."""
    what: str
    """Details that depend on the event, such as the exit status or the command."""

    def text(self, most: int | None = None) -> str:
        """Return the columns as one line, cut to `most` characters if given.

        Columns have a fixed width, since later lines are not known yet; a longer value shifts the
        columns after it.
        """
        event, terminal = self.event.ljust(_EVENT), self.terminal.ljust(_ID)
        owner = self.owner.ljust(_OWNER)
        line = f"{self.time}  {event}  {terminal}  {owner}  {self.who}  {self.what}".rstrip()
        return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def event_row(event: EventNotification) -> EventRow:
    """Return the columns of an event."""
    terminal = event.terminal
    short = _NONE
    if terminal is not None:
        short = summary_line(terminal.terminal_id.removeprefix("term_")[:_ID])
        if terminal.name:
            short = f"{short} {one_line(terminal.name, _WHO)}"
    return EventRow(
        time=time.strftime("%H:%M:%S", time.localtime(event.at / 1000)),
        event=one_line(event.event, _EVENT),
        terminal=short,
        owner=terminal.owner if terminal else _NONE,
        who=_who(event),
        what=_what(event),
    )


def _who(event: EventNotification) -> str:
    """Return the agent's name and the session's id of an event; `-` if the event has neither.

    If the agent has no name, return the id of its connection in place of the name.
    """
    words = [
        one_line(word, _WHO) for word in (event.agent or event.connection, event.session_id) if word
    ]
    return " ".join(words) or _NONE


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
    """Return the title (or else the id) and the status of the tool call in a `session/update`.

    Any member of `update` may be missing, since an agent wrote `update`. Return "" if `update` is
    not an object.
    """
    if isinstance(update, msgspec.Raw):
        update = msgspec.json.decode(update)
    if not isinstance(update, Mapping):
        return ""
    title, status, call = (update.get(name) for name in ("title", "status", "toolCallId"))
    words = [str(title)] if title else [f"call {call}"]
    if isinstance(status, str):
        words.append(f"[{status}]")
    return one_line(" ".join(words))
