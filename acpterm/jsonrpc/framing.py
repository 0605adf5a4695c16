r"""Split a stream of bytes into lines.

The rule: each line ends in ``\n``, however the transport has split the bytes. Lines over a limit
are dropped while they arrive, so memory never holds more than the limit, and so are lines for which
there is no memory; later lines are not affected.
"""

from typing import Final

from msgspec import Struct

MESSAGE_BYTES_MAX: Final = 64 * 1024 * 1024
"""The default maximum length of a message, in bytes."""


class Oversized(Struct, frozen=True):
    """Returned by `LineSplitter.feed` in place of a line that was dropped.

    The line is over the limit; or, if it is not, there was no memory for it.
    """

    size: int
    r"""The length of the line in bytes, without its ``\n``."""


class LineSplitter:
    """Splits a stream of bytes into lines.

    State: the beginning of the unfinished line, that line's length, and whether it was dropped. A
    line is dropped once its length exceeds the limit, or no memory is left for it; then only the
    length is counted until the line ends. No byte is
    scanned twice, so the work is linear in the input, however the input is split.
    """

    def __init__(self, max_line: int = MESSAGE_BYTES_MAX) -> None:
        r"""Accept lines of at most `max_line` bytes, counting a ``\r`` but not the ``\n``.

        Raises `ValueError` if `max_line` is less than 1.
        """
        if max_line < 1:
            raise ValueError(f"max_line is {max_line}: it must be 1 byte or more")
        self.max_line: Final = max_line
        self._partial = bytearray()
        self._size = 0
        self._is_dropped = False

    def feed(self, data: bytes | bytearray | memoryview) -> list[bytes | Oversized]:
        r"""Feed the next bytes; return the lines that they complete, in order.

        Lines are returned without their ``\n`` or ``\r\n``, and a line over the limit as
        `Oversized`. Blank lines are skipped.
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
        """The unfinished line so far; None if it was dropped."""
        return None if self._is_dropped else bytes(self._partial)

    def close(self) -> bytes:
        """End the input; return the unfinished line.

        The unfinished line is not a message, because its newline is missing. The result is empty if
        the input ended with a newline, or if the unfinished line was dropped.
        """
        rest = bytes(self._partial)
        self._partial, self._size, self._is_dropped = bytearray(), 0, False
        return rest

    def _keep(self, data: bytes, start: int) -> None:
        """Append `data[start:]` to the unfinished line, or drop the line."""
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
        """Return the unfinished line, completed by `data[start:end]`, and begin a new one.

        Returns `Oversized` if the line was dropped.
        """
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
