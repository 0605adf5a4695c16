r"""Lines out of bytes.

The rule: one message per line that ends in ``\n``, however the bytes were cut on their way
here, and never more than one line's limit of them in memory. A line over the limit is
counted and dropped while it arrives; the line after it is not lost.
"""

from typing import Final

from msgspec import Struct

LINE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The longest line taken unless told otherwise, in bytes."""


class Oversized(Struct, frozen=True):
    """A line that was too long to keep, reported once, where its end was."""

    size: int
    """How long it was, in bytes, without its ``\n``."""


class LineSplitter:
    """Cut a stream of bytes into lines.

    State: the beginning of the line that is not finished yet, and that line's length. The
    two agree until the length passes the limit; from there on to the end of the line only
    the length is kept. Bytes that were looked at are never looked at again, so the work is
    linear in what is fed, however it is split.
    """

    def __init__(self, max_line: int = LINE_BYTES_MAX) -> None:
        r"""Take lines of at most `max_line` bytes, a ``\r`` included and the ``\n`` not."""
        if max_line < 1:
            raise ValueError(f"max_line is {max_line}: it must be 1 byte or more")
        self.max_line: Final = max_line
        self._partial = bytearray()
        self._size = 0

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes | Oversized]:
        r"""Take the next bytes; return the lines they finish, in order.

        Lines come without their ``\n`` or ``\r\n``; blank ones do not come at all.
        """
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
        """The beginning of the line that is not finished yet; None of one over the limit."""
        return bytes(self._partial) if self._size <= self.max_line else None

    def close(self) -> bytes:
        """Say that nothing more comes; return what is left of an unfinished line.

        It is not a message: its end never came. Of a line over the limit nothing is left.
        """
        rest = bytes(self._partial)
        self._partial, self._size = bytearray(), 0
        return rest

    def _keep(self, data: bytes, start: int) -> None:
        """Take `data` from `start` on as more of the unfinished line."""
        self._size += len(data) - start
        if self._size <= self.max_line:
            self._partial += memoryview(data)[start:]
        else:
            self._partial = bytearray()

    def _finish(self, data: bytes, start: int, end: int) -> bytes | Oversized:
        """Return the line which ends at `end`; `data[start:end]` is the last of it."""
        size = self._size + end - start
        head, self._partial, self._size = self._partial, bytearray(), 0
        if size > self.max_line:
            return Oversized(size)
        if not head:
            return data[start:end]
        head += memoryview(data)[start:end]
        return bytes(head)
