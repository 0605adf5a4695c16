"""A terminal's output with its times, in the format asciicast v2 of asciinema.

The first line is an object that describes the terminal. Each other line is an event: `[TIME, CODE,
DATA]`, with the time in seconds since the start, which never decreases. Codes: `o` output, `i`
input, `r` a new size of the window (`"120x40"`), `m` a marker. Markers are used for missing output,
and for how the program ended. (docs.asciinema.org/manual/asciicast/v2)

`Walk` iterates over a terminal's stream, `Encoder` encodes events as lines, and `export` does both
for a terminal that was not recorded. None of them waits, or keeps more than one step in memory.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from acpterm.terminal.status import ExitStatus
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text.slices import resync
from acpterm.terminal.text.utf8 import Utf8

OUTPUT: Final = "o"
INPUT: Final = "i"
RESIZE: Final = "r"
MARKER: Final = "m"
# Bytes of output in one event, which take some 0.1 ms to encode.
CHUNK_BYTES: Final = 16 * 1024
# Characters of a command in the title.
_TITLE_MAX: Final = 1000
_encoder: Final = msgspec.json.Encoder()


class Event(NamedTuple):
    """An event of a terminal."""

    time: float
    """Seconds since the terminal's start."""
    code: str
    data: bytes


class Walk:
    """Iterates once over a terminal's output, from `position` or the oldest byte on."""

    def __init__(self, terminal: Terminal, position: int = 0) -> None:
        self._terminal: Final = terminal
        timeline = terminal.timeline
        #: The position after the last event returned.
        self.position = position
        #: Columns and rows at the beginning.
        self.size = timeline.size
        # The number of the next resize.
        self._number = timeline.first_resize
        start = max(position, terminal.ring.start)
        while (resize := timeline.resize_at(self._number)) and resize.position <= start:
            self.size = resize.cols, resize.rows
            self._number += 1

    def step(self, until: int, max_bytes: int = CHUNK_BYTES) -> Event | None:
        """Return the next event before the position `until`, or None.

        It has at most `max_bytes` of output. The stream must have reached `until`.
        """
        ring, timeline = self._terminal.ring, self._terminal.timeline
        if ring.start > self.position and until > self.position:
            return self._skip()
        resize = timeline.resize_at(self._number)
        if resize and resize.position <= self.position:
            self._number = max(self._number, timeline.first_resize) + 1
            return Event(resize.time, RESIZE, b"%dx%d" % (resize.cols, resize.rows))
        if self.position >= until:
            return None
        found = timeline.slice_at(self.position)
        end = min(found.end, until, self.position + max_bytes)
        if resize:
            end = min(end, resize.position)
        data = ring.read(self.position, end - self.position).data
        self.position = end
        return Event(found.time, OUTPUT, data)

    def _skip(self) -> Event:
        """Skip lost output, up to where the retained output can be displayed; return a marker."""
        ring, timeline = self._terminal.ring, self._terminal.timeline
        before = self.position
        start = ring.start
        self.position = start + resync(ring.read(start, CHUNK_BYTES).data)
        time = timeline.slice_at(min(self.position, timeline.end - 1)).time
        return Event(time, MARKER, b"%d bytes are missing here" % (self.position - before))


class Encoder:
    """Encodes events as lines, with text for bytes, and with times that never decrease.

    A character that is divided between two events of the same kind is whole in the later one.
    Invalid UTF-8 becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._time = 0.0
        self._utf8: Final = {OUTPUT: Utf8(), INPUT: Utf8()}

    @property
    def has_incomplete(self) -> int:
        """Bytes of output held until the rest of their character comes."""
        return self._utf8[OUTPUT].has_incomplete

    def encode(self, event: Event) -> bytes:
        """Return the lines of an event; empty if it is only a part of one character."""
        self._time = max(self._time, event.time)
        if event.code in self._utf8:
            return self._line(event.code, self._utf8[event.code].feed(event.data))
        # A character before a marker, such as one for missing output, cannot continue after it.
        rest = self.finish() if event.code == MARKER else b""
        return rest + self._line(event.code, event.data)

    def finish(self) -> bytes:
        """Return the lines of characters that are still incomplete."""
        return b"".join(self._line(code, utf8.finish()) for code, utf8 in self._utf8.items())

    def _line(self, code: str, text: bytes) -> bytes:
        if not text:
            return b""
        return _encoder.encode((round(self._time, 6), code, text.decode())) + b"\n"


def header(
    terminal: Terminal,
    size: tuple[int, int],
    *,
    command: str,
    env: Mapping[str, str] = MappingProxyType({}),
) -> bytes:
    """Return the first line. Of `env`, the program's environment, it has `TERM` and `SHELL`."""
    members = {
        "version": 2,
        "width": size[0],
        "height": size[1],
        "timestamp": int(terminal.started),
        "title": command[:_TITLE_MAX].encode(errors="replace").decode(),
        "env": {name: env[name] for name in ("TERM", "SHELL") if name in env},
    }
    return _encoder.encode(members) + b"\n"


def ending(status: ExitStatus) -> Event:
    """Return the marker that says how a program ended."""
    what = f"ended by {status.signal}" if status.signal else f"exited with {status.code}"
    return Event(status.wall, MARKER, what.encode())


def export(
    terminal: Terminal, *, command: str, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[bytes]:
    """Yield the lines of the output that the terminal retains at the first step.

    A step has at most `CHUNK_BYTES` of output, and lines of six times that at worst, so it blocks
    and holds little. The caller may take any time between two steps: output that the ring drops
    meanwhile is replaced by a marker, as is output that it had dropped before.
    """
    until = terminal.ring.end
    walk, encoder = Walk(terminal), Encoder()
    status = terminal.exit
    yield header(terminal, walk.size, command=command, env=env)
    while event := walk.step(until):
        if lines := encoder.encode(event):
            yield lines
    if rest := encoder.finish():
        yield rest
    if status is not None:
        yield encoder.encode(ending(status))
