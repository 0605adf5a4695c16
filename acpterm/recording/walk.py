"""A terminal's output with its times, as events of an asciicast.

Nothing here waits, or holds more than one event in memory.
"""

from collections.abc import Iterator
from typing import Final

from acpterm.recording.asciicast import MARKER, OUTPUT, RESIZE, Encoder, RawEvent, header
from acpterm.terminal.status import ExitStatus
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text.slices import resync

# The maximum number of bytes of output in one event. They take some 0.1 ms to encode.
CHUNK_BYTES: Final = 16 * 1024


class Walk:
    """Iterates once over a terminal's output and changes of size, starting at `position`."""

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

    def step(self, until: int, max_bytes: int = CHUNK_BYTES) -> RawEvent | None:
        """Return the next event before the position `until`, or a change of size there."""
        ring, timeline = self._terminal.ring, self._terminal.timeline
        if ring.start > self.position and until > self.position:
            return self._skip()
        resize = timeline.resize_at(self._number)
        if resize and resize.position <= self.position:
            self._number = max(self._number, timeline.first_resize) + 1
            return RawEvent(resize.time, RESIZE, b"%dx%d" % (resize.cols, resize.rows))
        if self.position >= until:
            return None
        found = timeline.slice_at(self.position)
        end = min(found.end, until, self.position + max_bytes)
        if resize:
            end = min(end, resize.position)
        data = ring.read(self.position, end - self.position).data
        self.position = end
        return RawEvent(found.time, OUTPUT, data)

    def _skip(self) -> RawEvent:
        """Skip output that the ring has dropped; return a marker with their number."""
        ring, timeline = self._terminal.ring, self._terminal.timeline
        before = self.position
        start = ring.start
        # The first retained bytes may be the rest of an escape sequence or of a character.
        self.position = start + resync(ring.read(start, CHUNK_BYTES).data)
        time = timeline.slice_at(min(self.position, timeline.end - 1)).time
        return RawEvent(time, MARKER, b"%d bytes are missing here" % (self.position - before))


def ending(status: ExitStatus) -> RawEvent:
    """Return the marker that says how a program ended."""
    what = f"ended by {status.signal}" if status.signal else f"exited with {status.code}"
    return RawEvent(status.wall, MARKER, what.encode())


def export(terminal: Terminal, *, command: str) -> Iterator[bytes]:
    """Yield the lines of an asciicast with the output that a terminal retains now.

    The caller may pause between two steps, which are short.
    """
    until = terminal.ring.end
    walk, encoder = Walk(terminal), Encoder()
    status = terminal.exit
    yield header(terminal.started, walk.size, command=command, env={})
    while event := walk.step(until):
        if lines := encoder.encode(event):
            yield lines
    if rest := encoder.finish():
        yield rest
    if status is not None:
        yield encoder.encode(ending(status))
