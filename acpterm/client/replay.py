"""Asciicasts, read: what a terminal showed, with the times it took.

A cast is a file from anywhere. It is read leniently: a line that is no event is left out, and
counted; only the first one, the header, has to be right. Version 2 is read, and 3, whose times
count from the event before, and which has comments. (docs.asciinema.org/manual/asciicast)
"""

from collections.abc import Iterable, Iterator
from typing import Any, BinaryIO, Final, NamedTuple, TypeGuard

import msgspec

from acpterm.terminal.text.slices import text_of

OUTPUT: Final = "o"
INPUT: Final = "i"
# The longest line that is read, in bytes; what is longer is no event of ours.
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
# What stands for a line that is longer: no line of a file is.
_TOO_LONG: Final = b""


class CastError(Exception):
    """What was given is no cast; the message says why."""


class Event(NamedTuple):
    """One event of a cast."""

    time: float
    """Seconds since the start; never less than that of the event before."""
    code: str
    """`o` output, `i` input, `r` a new size, `m` a marker, or others."""
    data: str


class Report:
    """How well a cast could be read: complete only when its events have been gone through."""

    def __init__(self) -> None:
        self.events = 0
        """How many events were read."""
        self.unread = 0
        """How many lines could not be."""
        self._first = ""

    def add_unread(self, line: int, why: str) -> None:
        """Count one more: the line of that number, from 1 on, which `why`, as in `is no JSON`."""
        self.unread += 1
        self._first = self._first or f"line {line}, which {why}"

    def summary(self, what: str) -> str:
        """Say how many lines `what`, as in `left out`, and what is wrong with the first.

        To be asked only if there are any.
        """
        if self.unread == 1:
            return f"1 line {what}: it is {self._first}"
        return f"{self.unread} lines {what}: the first is {self._first}"


class Cast(NamedTuple):
    """A cast: what its header says, and its events, which can be gone through once."""

    cols: int
    rows: int
    title: str
    timestamp: float | None
    """When it was recorded, in seconds since 1970; None where that is not said."""
    has_env: bool
    """Whether it says something of the program's environment."""
    events: Iterator[Event]
    report: Report
    """What became of the lines, as far as the events have been gone through."""


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Give the lines of a file; an empty one for each that is too long to be any of a cast."""
    while line := file.readline(_LINE_BYTES_MAX):
        if line.endswith(b"\n") or len(line) < _LINE_BYTES_MAX:
            yield line
        else:
            while (rest := file.readline(_LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass
            yield _TOO_LONG


def read(lines: Iterable[bytes]) -> Cast:
    """Read a cast from its lines. Raises `CastError` when the header is not right.

    The lines are taken as the events are asked for.
    """
    rest = iter(lines)
    first = next(rest, None)
    if first is None:
        raise CastError("the recording is empty: its first line should be an asciicast header")
    try:
        header = msgspec.json.decode(first.removeprefix(b"\xef\xbb\xbf"))
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise CastError(f"the first line is no JSON, so this is no asciicast: {error}") from error
    if not isinstance(header, dict) or "version" not in header:
        raise CastError("the first line is no header of an asciicast: it has no version")
    version = header["version"]
    if version not in (2, 3):
        raise CastError(f"the asciicast's version is {version!r}: only 2 and 3 can be played")
    cols, rows = _size(header, version)
    title, timestamp = header.get("title"), header.get("timestamp")
    report = Report()
    return Cast(
        cols=cols,
        rows=rows,
        title=title if isinstance(title, str) else "",
        timestamp=float(timestamp) if _is_number(timestamp) else None,
        has_env=bool(header.get("env")),
        events=_events(rest, report, relative=version == 3),
        report=report,
    )


def _size(header: dict[str, Any], version: int) -> tuple[int, int]:
    where: Any = header
    names = "width", "height"
    if version == 3:
        where = header.get("term", {})
        names = "cols", "rows"
    if not isinstance(where, dict):
        raise CastError(f"the asciicast's term is {where!r}: it should be an object")
    for name in names:
        value = where.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CastError(f"the asciicast's {name} is {value!r}: it should be 1 or more")
    return where[names[0]], where[names[1]]


def _events(lines: Iterable[bytes], report: Report, *, relative: bool) -> Iterator[Event]:
    last = 0.0
    for number, line in enumerate(lines, start=2):
        if line.isspace() or (relative and line.startswith(b"#")):
            continue
        try:
            event = _event(line)
        except _BadLineError as error:
            report.add_unread(number, str(error))
            continue
        report.events += 1
        last = max(last, last + event.time if relative else event.time)
        yield event._replace(time=last)


class _BadLineError(Exception):
    """A line is no event; the message says why, as in `is no JSON`."""


def _event(line: bytes) -> Event:
    """Read an event, with its time as it stands there."""
    if line == _TOO_LONG:
        raise _BadLineError(f"has {_LINE_BYTES_MAX} bytes or more")
    try:
        found = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _BadLineError(f"is no JSON: {error}") from error
    if not isinstance(found, list) or len(found) < 3:
        raise _BadLineError("is no array of a time, a code and data")
    time, code, data = found[:3]
    if not _is_number(time):
        raise _BadLineError("does not begin with a time in seconds")
    if not isinstance(code, str) or not isinstance(data, str):
        raise _BadLineError("has a code or data that is no string")
    return Event(float(time), code, data)


def _is_number(value: object) -> TypeGuard[float]:
    """Whether it is a time: finite, and of this world."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


def text_of_cast(cast: Cast) -> str:
    """Give the text of what a cast shows: no escape sequences, no lines overwritten.

    It takes memory for all of it.
    """
    output = (event.data for event in cast.events if event.code == OUTPUT)
    data = "".join(output).encode(errors="replace")
    return text_of(data, final=True)[0]
