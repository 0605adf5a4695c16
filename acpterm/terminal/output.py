"""What a terminal has printed: the ring of its raw bytes, and its text.

What is put may be put off: in a flood most of it is pushed out again before anybody asks, and then
the ring need not hold it, nor the text look at it. So a backlog of up to `PATIENCE` bytes is kept
as it came. Whoever asks, by `ring` or `text`, finds all of it taken in.
"""

import contextlib
import mmap
from typing import Final

from acpterm.pty import linux
from acpterm.terminal.ring import Ring
from acpterm.terminal.text import TextView

PATIENCE: Final = 4 * 1024 * 1024
# Bytes put off where that turned out to spare no work.
_STEP: Final = 256 * 1024


class Output:
    """The output of one terminal; `ring_size` and `limit` in bytes."""

    def __init__(self, ring_size: int, limit: int) -> None:
        self._ring: Final = Ring(ring_size)
        self._text: Final = TextView(limit)
        # Not of the heap, which would keep a hole where so much has been.
        self._backlog: mmap.mmap | None = None
        self._late = 0
        self._patience = PATIENCE
        self._flooded = False

    @property
    def end(self) -> int:
        """The position of the next byte; what was put off is counted, and left as it is."""
        return self._ring.end + self._late

    @property
    def ring(self) -> Ring:
        """The raw bytes."""
        self.catch_up()
        return self._ring

    @property
    def text(self) -> TextView:
        """The text."""
        self.catch_up()
        return self._text

    @property
    def capacity(self) -> int:
        """The most raw bytes that are kept."""
        return self._ring.capacity

    @property
    def held(self) -> int:
        """Bytes of output in memory, raw and text."""
        return self.ring.end - self.ring.start + self.text.size

    @property
    def is_late(self) -> bool:
        """Whether something was put off, or there is memory for it."""
        return self._backlog is not None

    def put(self, data: memoryview, *, later: bool) -> None:
        """Take what the terminal printed next, at most `PATIENCE`; `later`, if that spares work."""
        end = self._late + len(data)
        if not later or end > self._patience:
            self.catch_up()
            end = len(data)
        if later and self._backlog is None:
            # Without memory to spare nothing is put off.
            with contextlib.suppress(OSError):
                self._backlog = mmap.mmap(-1, PATIENCE)
        if later and self._backlog is not None:
            self._backlog[self._late : end] = data
            self._late = end
        else:
            self._write(data)
            self._text.feed(data)

    def catch_up(self) -> None:
        """Take in what was put off."""
        if self._backlog is not None and self._late:
            late, self._late = self._late, 0
            with memoryview(self._backlog) as data:
                self._write(data[:late])
            anew = self._text.feed(self._backlog, late)
            # What is looked at all the same is looked at in small steps.
            self._patience = PATIENCE if anew else _STEP

    def _write(self, data: memoryview) -> None:
        self._ring.write(data)

    def settle(self) -> None:
        """Take in what was put off, and keep no memory for more of it."""
        self.catch_up()
        if self._backlog is not None:
            self._backlog.close()
            self._backlog = None
            self._patience = PATIENCE
            self._flooded = True

    def finish(self) -> None:
        """Take the end of the stream: a character still incomplete becomes U+FFFD."""
        self.settle()
        self._text.finish()
        if self._flooded:
            # A text that began anew has left holes where the one before was.
            linux.trim_memory()
            self._flooded = False
