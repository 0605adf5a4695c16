"""A terminal's output with its times, in the format asciicast v2 of asciinema.

The first line is an object that describes the terminal. Each other line is an event: `[TIME, CODE,
DATA]`. The time is in seconds since the terminal's start, and never decreases. Codes: `o` output,
`i` input, `r` a new terminal size (`"120x40"`), `m` a marker. A marker stands for missing output,
or says how the program ended. (docs.asciinema.org/manual/asciicast/v2)

`Walk` iterates over a terminal's output, `Encoder` encodes events as lines, and `export` does both
for a terminal that was not recorded. None of them waits, or holds more than one event in memory.
"""

from collections.abc import Iterator, Mapping
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
# The maximum number of bytes of output in one event. They take some 0.1 ms to encode.
CHUNK_BYTES: Final = 16 * 1024
# A longer command is cut to this number of characters for the title.
_TITLE_MAX: Final = 1000
_encoder: Final = msgspec.json.Encoder()


class Event(NamedTuple):
    """An event of an asciicast: output, input, a new size, or a marker, as `code` says."""

    time: float
    """Seconds since the terminal's start."""
    code: str
    data: bytes


class Walk:
    """Iterates once over a terminal's output and changes of size, starting at `position`.

    A marker replaces output that the ring drops before the iteration has reached it. The marker
    says how many bytes are missing.
    """

    def __init__(self, terminal: Terminal, position: int = 0) -> None:
        self._terminal: Final = terminal
        timeline = terminal.timeline
        #: The position just past the last event returned.
        self.position = position
        #: Columns and rows of the terminal at the first event.
        self.size = timeline.size
        # The number of the next resize in the timeline.
        self._number = timeline.first_resize
        start = max(position, terminal.ring.start)
        while (resize := timeline.resize_at(self._number)) and resize.position <= start:
            self.size = resize.cols, resize.rows
            self._number += 1

    def step(self, until: int, max_bytes: int = CHUNK_BYTES) -> Event | None:
        """Return the next event that is not after the position `until`; None if there is none.

        A change of size at `until` is returned, but output ends before `until`. The event has at
        most `max_bytes` bytes of output. The terminal's output must have reached `until`.
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
        """Skip output that the ring has dropped; return a marker with the number of skipped bytes.

        The first retained bytes may be the rest of an escape sequence or of a character. So skip
        them too, usually up to the end of the line (see `resync`).
        """
        ring, timeline = self._terminal.ring, self._terminal.timeline
        before = self.position
        start = ring.start
        self.position = start + resync(ring.read(start, CHUNK_BYTES).data)
        time = timeline.slice_at(min(self.position, timeline.end - 1)).time
        return Event(time, MARKER, b"%d bytes are missing here" % (self.position - before))


class Encoder:
    """Encodes events as lines of JSON, with the events' bytes as text.

    An event that is earlier than the previous event gets the time of the previous event. A
    character that is split between two events with the same code is encoded with the later event.
    Invalid UTF-8 becomes U+FFFD.
    """

    def __init__(self) -> None:
        self._time = 0.0
        self._utf8: Final = {OUTPUT: Utf8(), INPUT: Utf8()}

    @property
    def incomplete_bytes(self) -> int:
        """How many bytes of output are held back until the rest of their character arrives."""
        return self._utf8[OUTPUT].incomplete_bytes

    def encode(self, event: Event) -> bytes:
        """Return an event as lines of JSON; empty if it has only a part of a character."""
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


def header(
    terminal: Terminal, size: tuple[int, int], *, command: str, env: Mapping[str, str]
) -> bytes:
    """Return the first line of an asciicast.

    `size` is the terminal's columns and rows. `command` is the terminal's command line, which
    becomes the member `title`. `env` is the program's environment, of which only `TERM` and `SHELL`
    are in the line.
    """
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
    """Return the marker event that says how a program ended."""
    what = f"ended by {status.signal}" if status.signal else f"exited with {status.code}"
    return Event(status.wall, MARKER, what.encode())


def export(terminal: Terminal, *, command: str) -> Iterator[bytes]:
    """Yield the lines of an asciicast, with the title `command`.

    The asciicast has the output that the terminal retains when the iteration begins. Each step
    processes at most `CHUNK_BYTES` bytes of output, so it blocks only for a short time. The caller
    may pause between two steps: output that the ring has dropped by then is replaced by a marker.
    """
    until = terminal.ring.end
    walk, encoder = Walk(terminal), Encoder()
    status = terminal.exit
    yield header(terminal, walk.size, command=command, env={})
    while event := walk.step(until):
        if lines := encoder.encode(event):
            yield lines
    if rest := encoder.finish():
        yield rest
    if status is not None:
        yield encoder.encode(ending(status))
