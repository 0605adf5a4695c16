"""The last bytes of a growing text, such as the finished lines of the output, up to a limit.

States and rules:

- The text is a list of closed pieces and one open piece. Small additions go into the open piece, so
  that adding a single byte takes about one byte of memory.
- Whole pieces are dropped, oldest first. So the retained bytes may exceed `limit` by about a
  sixteenth (with a small limit, by some KiB). `last` returns exactly the requested number of bytes,
  which may begin within a character; `fit` returns how many to request to avoid that.
- `total` counts the bytes that were added, without those that `pop_lines` removed. The text exceeds
  the limit if `total` exceeds it, or if `gone` is not 0: then it did so before lines were removed.
"""

from __future__ import annotations

from acpterm.terminal.text.utf8 import is_continuation

#: Additions of fewer bytes are copied into the open piece.
_SMALL_BYTES = 2048
#: The open piece is closed at this length. Long additions are divided into pieces of a sixteenth of
#: the limit, but not shorter than this and not longer than `_PIECE_MAX_BYTES`.
_PIECE_MIN_BYTES = 4096
_PIECE_MAX_BYTES = 65536
#: `pop_lines` searches this many bytes first, and at most the second number.
_POP_BYTES = 4096
_POP_MAX_BYTES = 256 * 1024


class Tail:
    """Keeps at least the last `limit` bytes of the added text."""

    __slots__ = ("_limit", "_open", "_pieces", "gone", "retained", "total")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._pieces: list[bytes] = []
        self._open = bytearray()
        #: The number of bytes of the text that are in memory.
        self.retained = 0
        #: The number of bytes added and not removed.
        self.total = 0
        #: The number of bytes that were beyond the limit when lines were last removed.
        self.gone = 0

    def add(self, data: bytes) -> None:
        added = len(data)
        self.total += added
        if added > self._limit:
            data = data[added - self._limit :]
            added = self._limit
        if not added:
            return
        self.retained += added
        if added < _SMALL_BYTES:
            self._open += data
            if len(self._open) >= _PIECE_MIN_BYTES:
                self._close()
        else:
            self._close()
            piece = max(_PIECE_MIN_BYTES, min(_PIECE_MAX_BYTES, self._limit // 16))
            self._pieces += [data[at : at + piece] for at in range(0, added, piece)]
        if self.retained > self._limit:
            self._drop()

    def pop_lines(self, count: int, floor: int) -> list[str]:
        """Remove and return the last lines, at most `count`, in order, with their newlines.

        The end of the text counts as a line. No line is removed that begins before `floor`, a value
        that `total` has had, or that is not retained as a whole.
        """
        self.gone = max(self.gone, self.total - self._limit)
        begin = max(floor, self.gone)
        available = min(self.total - begin, _POP_MAX_BYTES)
        is_whole = available == self.total - floor
        size = min(_POP_BYTES, available)
        while True:
            data = self.last(size)
            at = len(data) - data.endswith(b"\n")
            found = 0
            while found < count and at >= 0:
                at = data.rfind(b"\n", 0, at)
                found += 1
            if at >= 0 or size == available:
                break
            size = min(4 * size, available)
        if at < 0 and not is_whole:
            # The first line lacks its beginning.
            at = data.find(b"\n")
            at = len(data) if at < 0 else at
        data = data[at + 1 :]
        self._cut(len(data))
        return [line.decode() for line in data.splitlines(keepends=True)]

    def _cut(self, size: int) -> None:
        """Remove the last `size` bytes."""
        self.total -= size
        self.retained -= size
        while size:
            if not self._open:
                self._open = bytearray(self._pieces.pop())
            removed = min(size, len(self._open))
            del self._open[-removed:]
            size -= removed

    def last(self, length: int, suffix: bytes = b"") -> bytes:
        """Return the last `length` retained bytes of the text, followed by `suffix`."""
        first, skip = self._locate(max(0, self.retained - length))
        if first == len(self._pieces):
            return bytes(self._open[skip:]) + suffix
        with memoryview(self._pieces[first]) as head:
            return b"".join((head[skip:], *self._pieces[first + 1 :], self._open, suffix))

    def fit(self, length: int) -> int:
        """Return the number of bytes to request from `last` so that they begin with a character."""
        skip = max(0, self.retained - min(length, self.total - self.gone))
        while skip < self.retained:
            first, offset = self._locate(skip)
            piece = self._open if first == len(self._pieces) else self._pieces[first]
            if not is_continuation(piece[offset]):
                break
            skip += 1
        return self.retained - skip

    def _locate(self, index: int) -> tuple[int, int]:
        """Return the number of the piece that has the byte, and its index there."""
        number = 0
        while number < len(self._pieces) and index >= len(self._pieces[number]):
            index -= len(self._pieces[number])
            number += 1
        return number, index

    def _close(self) -> None:
        if self._open:
            self._pieces.append(bytes(self._open))
            self._open = bytearray()

    def _drop(self) -> None:
        excess = self.retained - self._limit
        first, offset = self._locate(excess)
        if first:
            del self._pieces[:first]
            self.retained = self._limit + offset
