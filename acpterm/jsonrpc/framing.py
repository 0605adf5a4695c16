r"""Split a stream of bytes into lines.

The rule: each line ends in ``\n``, however the transport has split the bytes. Lines over a limit
are dropped while they arrive, so memory never holds more than the limit, and so are lines for which
there is no memory; later lines are not affected.
"""

from typing import Final

from msgspec import Struct

MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024  # by default


class Oversized(Struct, frozen=True):
    """A line that was dropped: it is over the limit, or there was no memory for it."""

    size: int  # bytes, without the newline


class LineSplitter:
    """Splits a stream of bytes into lines. No byte is scanned twice."""

    # Once a line is over the limit, or there is no memory for it, only its length is counted.

    def __init__(self, max_line: int = MESSAGE_BYTES_MAX) -> None:
        r"""Accept lines of at most `max_line` bytes, counting a ``\r`` but not the ``\n``."""
        if max_line < 1:
            raise ValueError(f"max_line is {max_line}: it must be 1 byte or more")
        self.max_line: Final = max_line
        self._partial = bytearray()
        self._size = 0
        self._is_dropped = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes | Oversized]:
        """Return the lines that `data` completes, without their ends and without blank ones."""
        if not isinstance(data, bytes):
            data = bytes(data)
        lines: list[bytes | Oversized] = []
        start = 0
        while (end := data.find(b"\n", start)) >= 0:
            line = self._finish(data, start, end)
            start = end + 1
            if isinstance(line, Oversized):
                lines.append(line)
            elif line and not line.isspace():
                lines.append(line.removesuffix(b"\r"))
        if start < len(data):
            self._keep(data, start)
        return lines

    @property
    def unfinished(self) -> bytes | None:
        """The unfinished line so far; None if it was dropped."""
        return None if self._is_dropped else bytes(self._partial)

    def close(self) -> bytes:
        """End the input; return the unfinished line, which is no message."""
        rest = bytes(self._partial)
        self._partial, self._size, self._is_dropped = bytearray(), 0, False
        return rest

    def _keep(self, data: bytes, start: int) -> None:
        self._size += len(data) - start
        if self._size <= self.max_line and not self._is_dropped:
            try:
                self._partial += memoryview(data)[start:]
            except MemoryError:
                self._is_dropped = True
        else:
            self._is_dropped = True
        if self._is_dropped:
            self._partial = bytearray()

    def _finish(self, data: bytes, start: int, end: int) -> bytes | Oversized:
        size, is_dropped = self._size + end - start, self._is_dropped
        head, self._partial, self._size, self._is_dropped = self._partial, bytearray(), 0, False
        if size > self.max_line or is_dropped:
            return Oversized(size)
        if not head:
            return data[start:end]
        try:
            head += memoryview(data)[start:end]
            return bytes(head)
        except MemoryError:
            return Oversized(size)
