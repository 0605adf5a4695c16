"""A terminal's output with its times, as asciicast v2: what asciinema plays.

The first line is an object that describes the terminal, each other line an event: `[TIME, CODE,
DATA]`, with the time in seconds since the start, which never goes back. Codes: `o` output, `i`
input, `r` a new size of the window (`"120x40"`), `m` a marker; markers say here what is missing,
and how the program ended. (docs.asciinema.org/manual/asciicast/v2)

`Walk` goes through a terminal's stream, `Encoder` makes lines of what it finds; `export` is both,
for a terminal that was not recorded. None of them waits, and none holds more than one step.
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
# Bytes of output in one event: some 0.1 ms of work.
CHUNK_BYTES: Final = 16 * 1024
# Characters of a command that a title shows.
_TITLE: Final = 1000
_encoder: Final = msgspec.json.Encoder()


class Event(NamedTuple):
    """Something that happened to a terminal."""

    time: float
    """Seconds since the terminal's start."""
    code: str
    data: bytes


class Walk:
    """Goes once through what a terminal has printed, from `position` or the oldest byte on."""

    def __init__(self, terminal: Terminal, position: int = 0) -> None:
        self._terminal: Final = terminal
        timeline = terminal.timeline
        #: Up to where it has come.
        self.position = position
        #: Columns and rows at the beginning.
        self.size = timeline.size
        # The number of the next resize.
        self._number = timeline.first_resize
        start = max(position, terminal.ring.start)
        while (resize := timeline.resize_at(self._number)) and resize.position <= start:
            self.size = resize.cols, resize.rows
            self._number += 1

    def step(self, until: int, most: int = CHUNK_BYTES) -> Event | None:
        """Give the next event of those before the position `until`; None is that there is none.

        At most `most` bytes of output. `until`: a position that the stream has reached.
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
        end = min(found.end, until, self.position + most)
        if resize:
            end = min(end, resize.position)
        data = ring.read(self.position, end - self.position).data
        self.position = end
        return Event(found.time, OUTPUT, data)

    def _skip(self) -> Event:
        """Go on with what is kept, from where it can be shown."""
        ring, timeline = self._terminal.ring, self._terminal.timeline
        before = self.position
        start = ring.start
        self.position = start + resync(ring.read(start, CHUNK_BYTES).data)
        time = timeline.slice_at(min(self.position, timeline.end - 1)).time
        return Event(time, MARKER, b"%d bytes are missing here" % (self.position - before))


class Encoder:
    """Makes lines of events: text of bytes, and time that only goes on.

    A character that is cut between two events of a kind is whole in the later one; what is not
    UTF-8 is U+FFFD.
    """

    def __init__(self) -> None:
        self._time = 0.0
        self._utf8: Final = {OUTPUT: Utf8(), INPUT: Utf8()}

    @property
    def has_incomplete(self) -> int:
        """Bytes of output that wait for the rest of their character."""
        return self._utf8[OUTPUT].has_incomplete

    def encode(self, event: Event) -> bytes:
        """Give the lines of an event: nothing, while it is a part of one character."""
        self._time = max(self._time, event.time)
        if event.code in self._utf8:
            return self._line(event.code, self._utf8[event.code].feed(event.data))
        # What was cut by whatever a marker tells of does not go on behind it.
        rest = self.finish() if event.code == MARKER else b""
        return rest + self._line(event.code, event.data)

    def finish(self) -> bytes:
        """Give the lines of what is still incomplete."""
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
    """Make the first line. `env`: of the program, of which `TERM` and `SHELL` are told."""
    described = {
        "version": 2,
        "width": size[0],
        "height": size[1],
        "timestamp": int(terminal.started),
        "title": command[:_TITLE].encode(errors="replace").decode(),
        "env": {name: env[name] for name in ("TERM", "SHELL") if name in env},
    }
    return _encoder.encode(described) + b"\n"


def ending(status: ExitStatus) -> Event:
    """Make the marker that says how a program ended."""
    what = f"ended by {status.signal}" if status.signal else f"exited with {status.code}"
    return Event(status.wall, MARKER, what.encode())


def export(
    terminal: Terminal, *, command: str, env: Mapping[str, str] = MappingProxyType({})
) -> Iterator[bytes]:
    """Give the lines of what the terminal has kept when the first is asked for, bit by bit.

    A step has at most `STEP` bytes of output, and lines of six times that at worst: nothing is held
    up, and little held. Whoever sends them may take as long as that takes: what the terminal has
    dropped meanwhile is told of by a marker, as is what it had dropped before.
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
