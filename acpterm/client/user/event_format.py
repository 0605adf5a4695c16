"""Events as lines of text."""

import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from acpterm.acp.user_streams import EventNotification
from acpterm.client.sanitize import one_line
from acpterm.client.user.format import duration, summary_line
from acpterm.client.user.words import ended

RECONNECTED: Final = "reconnected"
"""The event that the daemon's worker was replaced; it is made by `watching`."""
# Hexadecimal digits of an id: later ids, from which it must differ, are not known yet.
_ID: Final = 8
# Characters of what an agent or a program calls itself.
_WHO: Final = 24
# The longest words that stand in a column.
_EVENT: Final = 12
_OWNER: Final = 5
_NONE: Final = "-"


class EventRow(NamedTuple):
    """The words for an event, each safe to print, in the order of the columns."""

    time: str
    event: str
    terminal: str
    owner: str
    who: str
    what: str

    def text(self, most: int | None = None) -> str:
        """Put them in a line of `most` characters, if it is to be cut.

        They are in columns, as far as that goes when later lines are not known.
        """
        event, terminal = self.event.ljust(_EVENT), self.terminal.ljust(_ID)
        owner = self.owner.ljust(_OWNER)
        line = f"{self.time}  {event}  {terminal}  {owner}  {self.who}  {self.what}".rstrip()
        return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def event_row(event: EventNotification) -> EventRow:
    """Return the words for an event."""
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
    """Return the agent and the session."""
    words = [
        one_line(word, _WHO) for word in (event.agent or event.connection, event.session_id) if word
    ]
    return " ".join(words) or _NONE


def _what(event: EventNotification) -> str:
    terminal = event.terminal
    if terminal is None:
        return _apart_from_terminals(event)
    if event.event == "exited" and terminal.exit_status is not None:
        status = terminal.exit_status
        words = f"{ended(status)} after {duration(status.wall_ms / 1000)}"
        return (
            words
            if status.ended_by == "exited"
            else f"{words}  (by {summary_line(status.ended_by)})"
        )
    if event.event in ("attached", "detached"):
        return f"{terminal.attached} attached"
    if event.event == "resized":
        return f"{terminal.cols}x{terminal.rows}"
    command = one_line(terminal.command)
    return f"{command}  (by {summary_line(event.by)})" if event.by else command


def _apart_from_terminals(event: EventNotification) -> str:
    if event.event == "tool_call":
        return _call(event.update)
    if event.event == RECONNECTED:
        return "the daemon's worker was replaced: events may be missing"
    return ""


def _call(update: Any) -> str:
    """Say what an update of a tool call says: what of it is there, the agent decides."""
    if isinstance(update, msgspec.Raw):
        update = msgspec.json.decode(update)
    if not isinstance(update, Mapping):
        return ""
    title, status, call = (update.get(name) for name in ("title", "status", "toolCallId"))
    words = [str(title)] if title else [f"call {call}"]
    if isinstance(status, str):
        words.append(f"[{status}]")
    return one_line(" ".join(words))
