"""Asciicasts, the recordings of asciinema: writes version 2, reads versions 2 and 3.

The first line is an object that describes the terminal. Each other line is an event: `[TIME, CODE,
DATA]`, with the time in seconds since the terminal's start. In version 3, times are relative to the
previous event, and lines that begin with "#" are comments. (docs.asciinema.org/manual/asciicast)

Any program may have written a cast, so it is read leniently: only the header must be valid. Other
lines that are not events are skipped and counted. The page reads asciicasts in `js/cast.js`.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, BinaryIO, Final, NamedTuple, TypeGuard

import msgspec

from acpterm.terminal.text.utf8 import Utf8

OUTPUT: Final = "o"
INPUT: Final = "i"
RESIZE: Final = "r"
MARKER: Final = "m"
# A longer command is cut to this number of characters for the title.
_TITLE_MAX: Final = 1000
# Longer lines are skipped.
_LINE_BYTES_MAX: Final = 16 * 1024 * 1024
# Stands for a line that is too long. A line of a file is never empty: it has at least its newline.
_TOO_LONG: Final = b""
_encoder: Final = msgspec.json.Encoder()


class CastError(Exception):
    pass


class Event(NamedTuple):
    """One event of a cast, such as output of the program: its time, its kind and its text."""

    time: float
    """Seconds since the start of the cast; never less than the time of the previous event."""
    code: str
    """`OUTPUT`, `INPUT`, `RESIZE` (`"120x40"`), `MARKER`, or a code that is unknown here."""
    data: str


class RawEvent(NamedTuple):
    """An event to be written: its bytes may end within a character."""

    time: float
    """Seconds since the terminal's start."""
    code: str
    data: bytes


class CastReport:
    """Counts the events and the skipped lines of a cast, while its events are read."""

    def __init__(self) -> None:
        self.events = 0
        self.unread = 0
        self._first = ""

    def add_unread(self, line: int, why: str) -> None:
        """Count a line as skipped; `why` completes "line N …", such as `is no JSON`."""
        self.unread += 1
        self._first = self._first or f"line {line}, which {why}"

    def summary(self, what: str) -> str:
        """Say how many lines were skipped, and why; `what` completes "N lines …"."""
        if self.unread == 1:
            return f"1 line {what}: it is {self._first}"
        return f"{self.unread} lines {what}: the first is {self._first}"


class Cast(NamedTuple):
    """The header of a cast, and its events, which can be iterated over once."""

    cols: int
    rows: int
    title: str
    timestamp: float | None
    """Time of the recording in seconds since 1970; None if missing."""
    events: Iterator[Event]
    report: CastReport
    """How many events were read, and how many lines were skipped, so far."""


def read_lines(file: BinaryIO) -> Iterator[bytes]:
    """Yield the lines of a file; for each line over `_LINE_BYTES_MAX` yield empty bytes instead."""
    while line := file.readline(_LINE_BYTES_MAX):
        if line.endswith(b"\n") or len(line) < _LINE_BYTES_MAX:
            yield line
        else:
            while (rest := file.readline(_LINE_BYTES_MAX)) and not rest.endswith(b"\n"):
                pass
            yield _TOO_LONG


def read(lines: Iterable[bytes]) -> Cast:
    """Return the cast that consists of `lines`, of which only the header is read yet.

    Raises `CastError` if the header is invalid.
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
    report = CastReport()
    return Cast(
        cols=cols,
        rows=rows,
        title=title if isinstance(title, str) else "",
        timestamp=float(timestamp) if _is_number(timestamp) else None,
        events=_events(rest, report, relative=version == 3),
        report=report,
    )


def _size(header: dict[str, Any], version: int) -> tuple[int, int]:
    size: Any = header
    names = "width", "height"
    if version == 3:
        size = header.get("term", {})
        names = "cols", "rows"
    if not isinstance(size, dict):
        raise CastError(f"the asciicast's term is {size!r}: it should be an object")
    for name in names:
        value = size.get(name)
        if not isinstance(value, int) or isinstance(value, bool) or value < 1:
            raise CastError(f"the asciicast's {name} is {value!r}: it should be 1 or more")
    return size[names[0]], size[names[1]]


def _events(lines: Iterable[bytes], report: CastReport, *, relative: bool) -> Iterator[Event]:
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
    """A line is not an event. The message completes "the line …"."""


def _event(line: bytes) -> Event:
    """Parse a line as an event, with the time as in the line. Raises `_BadLineError`."""
    if line == _TOO_LONG:
        raise _BadLineError(f"has {_LINE_BYTES_MAX} bytes or more")
    try:
        value = msgspec.json.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise _BadLineError(f"is no JSON: {error}") from error
    if not isinstance(value, list) or len(value) < 3:
        raise _BadLineError("is no array of a time, a code and data")
    time, code, data = value[:3]
    if not _is_number(time):
        raise _BadLineError("does not begin with a time in seconds")
    if not isinstance(code, str) or not isinstance(data, str):
        raise _BadLineError("has a code or data that is no string")
    return Event(float(time), code, data)


def _is_number(value: object) -> TypeGuard[float]:
    """Return whether a value can be a time in seconds: a number between -1e12 and 1e12."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 1e12


class Encoder:
    """Encodes events as lines. Times never decrease, and invalid UTF-8 becomes U+FFFD.

    A character that is split between two events with the same code comes with the later one.
    """

    def __init__(self) -> None:
        self._time = 0.0
        self._utf8: Final = {OUTPUT: Utf8(), INPUT: Utf8()}

    @property
    def incomplete_bytes(self) -> int:
        """How many bytes of output are held back until the rest of their character arrives."""
        return self._utf8[OUTPUT].incomplete_bytes

    def encode(self, event: RawEvent) -> bytes:
        """Return an event as lines; empty if it has only a part of a character."""
        self._time = max(self._time, event.time)
        if event.code in self._utf8:
            return self._line(event.code, self._utf8[event.code].feed(event.data))
        # A character before a marker, such as one for missing output, cannot continue after it.
        rest = self.finish() if event.code == MARKER else b""
        return rest + self._line(event.code, event.data)

    def finish(self) -> bytes:
        """Return lines with U+FFFD in place of incomplete characters that are still held back."""
        return b"".join(self._line(code, utf8.finish()) for code, utf8 in self._utf8.items())

    def _line(self, code: str, text: bytes) -> bytes:
        if not text:
            return b""
        return _encoder.encode((round(self._time, 6), code, text.decode())) + b"\n"


def header(started: float, size: tuple[int, int], *, command: str, env: Mapping[str, str]) -> bytes:
    """Return the first line; `started` is in seconds since 1970, `size` columns and rows."""
    members = {
        "version": 2,
        "width": size[0],
        "height": size[1],
        "timestamp": int(started),
        "title": command[:_TITLE_MAX].encode(errors="replace").decode(),
        "env": {name: env[name] for name in ("TERM", "SHELL") if name in env},
    }
    return _encoder.encode(members) + b"\n"
