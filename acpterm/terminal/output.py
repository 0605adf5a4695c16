"""What a terminal has printed: the ring of its raw bytes, and its text.

What is put may be put off: in a flood most of it is pushed out again before anybody asks, and then
the ring need not hold it, nor the text look at it. So a backlog of up to `PATIENCE` bytes is kept
as it came. Whoever asks, by `ring` or `text`, finds all of it taken in.
"""

from typing import Final

from acpterm.terminal.ring import Ring
from acpterm.terminal.text import TextView

PATIENCE: Final = 4 * 1024 * 1024


class Output:
    """The output of one terminal; `ring_size` and `limit` in bytes."""

    def __init__(self, ring_size: int, limit: int) -> None:
        self._ring: Final = Ring(ring_size)
        self._text: Final = TextView(limit)
        self._backlog = bytearray()

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
    def held(self) -> int:
        """Bytes of output in memory, raw and text."""
        return self.ring.end - self.ring.start + self.text.size

    def put(self, data: memoryview, *, later: bool) -> None:
        """Take what the terminal printed next; `later`, if that spares work."""
        if later:
            self._backlog += data
            if len(self._backlog) > PATIENCE:
                self.catch_up()
        else:
            self.catch_up()
            self._ring.write(data)
            self._text.feed(data)

    def catch_up(self) -> None:
        """Take in what was put off, and keep no memory for it."""
        if self._backlog:
            data, self._backlog = self._backlog, bytearray()
            self._ring.write(data)
            self._text.feed(data)

    def finish(self) -> None:
        """Take the end of the stream: a character still incomplete becomes U+FFFD."""
        self.text.finish()
