"""Formats entries of the audit log as lines of text, for `acpterm audit`."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Final, NamedTuple

from acpterm.client.sanitize import one_line
from acpterm.policy.audit.entry import Entry
from acpterm.runtime.command_line import command_line

# Widths of columns. Each has a fixed width, since later lines are not known yet; a longer value
# shifts the columns after it.
_EVENT: Final = 8
_AGENT: Final = 16
_SESSION: Final = 12
# Hexadecimal digits that are shown of a terminal's id.
_ID: Final = 8
_NONE: Final = "-"
# Maximum length of a text that an agent chose, in characters. --json shows all of it.
_TEXT: Final = 1000


class AuditRow(NamedTuple):
    """The columns of an entry in `acpterm audit`, in order. Every column is safe to print."""

    time: str
    event: str
    agent: str
    session: str
    terminal: str
    what: str
    """Details that depend on the event, such as the command or the decision."""

    def text(self, most: int | None = None) -> str:
        """Return the columns as one line, cut to `most` characters if given."""
        event, agent = self.event.ljust(_EVENT), self.agent.ljust(_AGENT)
        session, terminal = self.session.ljust(_SESSION), self.terminal.ljust(_ID)
        line = f"{self.time}  {event}  {agent}  {session}  {terminal}  {self.what}".rstrip()
        return line if most is None or len(line) <= most else f"{line[: most - 1]}…"


def audit_row(entry: Entry) -> AuditRow:
    """Return the columns of an entry, with the time converted to local time."""
    return AuditRow(
        time=_local(entry.time),
        event=one_line(entry.event, 2 * _EVENT) or _NONE,
        agent=_word(entry.agent or entry.connection, _AGENT),
        session=_word(entry.session, _SESSION),
        terminal=_word((entry.terminal or "").removeprefix("term_")[:_ID], _ID),
        what=one_line(_DETAILS.get(entry.event, _other)(entry), 2 * _TEXT),
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
    return one_line(text, most) if text else _NONE


def _command(entry: Entry) -> str:
    return "" if entry.command is None else one_line(command_line(entry.command, entry.args), _TEXT)


def _notes(*notes: str | None) -> str:
    """Return the notes in parentheses, separated by commas; "" if all are None or empty."""
    found = [one_line(note) for note in notes if note]
    return f"({', '.join(found)})" if found else ""


def _join(*words: str | None) -> str:
    return "  ".join(word for word in words if word)


def _created(entry: Entry) -> str:
    rule = entry.rule and f"rule {entry.rule}"
    return _join(
        _command(entry),
        _notes(entry.decision, entry.level, rule, entry.profile, entry.provider),
        entry.directory and f"in {one_line(entry.directory)}",
    )


def _decided(entry: Entry) -> str:
    words = " ".join(word for word in (entry.decision, entry.by and f"by {entry.by}") if word)
    rule = entry.rule and f"rule {entry.rule}"
    return _join(words, _notes(entry.level, rule), _reason(entry), _command(entry))


def _ended(entry: Entry) -> str:
    how = f"by {entry.signal}" if entry.signal else f"with {entry.code}"
    return _join(f"ended {how}", _notes(entry.ended_by, entry.limit), _reason(entry))


def _typed(entry: Entry) -> str:
    unit = "byte" if entry.bytes == 1 else "bytes"
    by = " ".join(word for word in (entry.by or "unknown", entry.share) if word)
    return f"{entry.bytes or 0} {unit} typed by {by}"


def _gap(entry: Entry) -> str:
    since, to = (_local(at or "").strip() for at in (entry.since, entry.to))
    unit = "entry" if entry.lost == 1 else "entries"
    return f"{entry.lost or 0} {unit} lost from {since} to {to}: {entry.reason or 'unknown'}"


def _other(entry: Entry) -> str:
    """Return the details of an entry (signal, command, …) whose event is not in `_DETAILS`."""
    pid = None if entry.pid is None else f"pid {entry.pid}"
    by = entry.by and f"by {entry.by}"
    notes = _notes(entry.limit, entry.rule)
    left = one_line(f"ended {', '.join(entry.background)}") if entry.background else None
    return _join(entry.signal, notes, left, pid, by, entry.share, _reason(entry), _command(entry))


def _reason(entry: Entry) -> str:
    return one_line(entry.reason or "")


_DETAILS: Final[dict[str, Callable[[Entry], str]]] = {
    "create": _created,
    "check": _created,
    "decision": _decided,
    "exit": _ended,
    "gap": _gap,
    "input": _typed,
}
