"""Formats entries of the audit log as lines of text, for `acpterm audit`."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import msgspec

from acpterm.audit.entry import DECISION_COLOURS, EVENTS, Entry, EventKind
from acpterm.commands.format import NOTHING, cut, summary_line
from acpterm.runtime.command_line import command_line
from acpterm.runtime.sanitize import one_line

# Widths of columns. Each has a fixed width, since later lines are not known yet; a longer value
# shifts the columns after it.
_EVENT: Final = 8
_AGENT: Final = 16
_SESSION: Final = 12
# Hexadecimal digits that are shown of a terminal's id.
_ID: Final = 8
# In a narrower window the details would have no room: there the date is shorter, and the agent's
# name, and the session is left out.
_WIDE: Final = 120
_NARROW_AGENT: Final = 10
_UNITS: Final = {
    "bytes": ("byte", "bytes"),
    "lost": ("entry", "entries"),
    "changes": ("change", "changes"),
    "failures": ("failure", "failures"),
}
# An event of another version of acpterm.
_OTHER: Final = EventKind("")


class AuditRow(NamedTuple):
    """The columns of an entry in `acpterm audit`, in order. Every column is safe to print."""

    time: str
    event: str
    agent: str
    session: str
    terminal: str
    what: str
    """Details that depend on the event, such as the command or the decision."""
    colour: str | None

    def text(self, most: int | None = None) -> str:
        event, terminal = self.event.ljust(_EVENT), self.terminal.ljust(_ID)
        if most is None or most >= _WIDE:
            who = f"{self.agent.ljust(_AGENT)}  {self.session.ljust(_SESSION)}"
            line = f"{self.time}  {event}  {who}  {terminal}  {self.what}".rstrip()
        else:
            agent = one_line(self.agent, _NARROW_AGENT).ljust(_NARROW_AGENT)
            line = f"{self.time[5:16]}  {event}  {agent}  {terminal}  {self.what}".rstrip()
        return cut(line, most)


def audit_row(entry: Entry) -> AuditRow:
    event = EVENTS.get(entry.event, _OTHER)
    colour = (
        DECISION_COLOURS.get(entry.decision or "") if entry.event == "decision" else event.colour
    )
    return AuditRow(
        time=_local(entry.time),
        event=one_line(entry.event, 2 * _EVENT) or NOTHING,
        agent=_word(entry.agent or entry.connection, _AGENT),
        session=_word(entry.session, _SESSION),
        terminal=_word((entry.terminal or "").removeprefix("term_")[:_ID], _ID),
        what=summary_line(_details(event.words, entry)),
        colour=colour,
    )


def _local(time: str) -> str:
    try:
        at = datetime.fromisoformat(time)
    except ValueError:
        return one_line(time, 19).ljust(19)
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S}"


def _word(text: str | None, most: int) -> str:
    return one_line(text, most) if text else NOTHING


def _details(words: str, entry: Entry) -> str:
    texts = _Texts(msgspec.to_builtins(entry))
    pieces = []
    for piece in words.split("  "):
        if piece.startswith("("):
            found = ", ".join(filter(None, (texts.fill(one) for one in piece[1:-1].split(", "))))
            pieces.append(found and f"({found})")
        else:
            pieces.append(next(filter(None, map(texts.fill, piece.split(" | "))), ""))
    return "  ".join(filter(None, pieces))


class _Texts:
    """The members of an entry as texts. A member that is missing or empty raises `KeyError`."""

    def __init__(self, members: Mapping[str, Any]) -> None:
        self._members = members

    def fill(self, piece: str) -> str:
        """Return the piece with the members that it names; "" if one of them is missing."""
        try:
            return piece.format_map(self)
        except KeyError:
            return ""

    def __getitem__(self, name: str) -> str:
        value = self._members[name]
        if value in ("", []):
            raise KeyError(name)
        if name == "command":
            return summary_line(command_line(value, self._members.get("args")))
        if name in ("from", "to"):
            return _local(value).strip()
        if name in _UNITS:
            return f"{value} {_UNITS[name][value != 1]}"
        return summary_line(", ".join(value) if isinstance(value, list) else str(value))
