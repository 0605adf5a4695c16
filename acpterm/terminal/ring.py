"""The raw bytes a terminal printed: the last `capacity` of them, by absolute position.

States and rules:

- The first byte of the stream has position 0. Positions only grow and are never reused.
- `start <= position < end` is what is kept; `end - start` never exceeds the capacity.
- A reader asks for "everything since N" and is told how much of that is gone.
- Until the capacity is reached the buffer is as long as what was written; from then on
  the byte at position p is at index p modulo capacity.
"""

from __future__ import annotations

from typing import NamedTuple


class Slice(NamedTuple):
    """A run of the stream, and what was asked for before it but is gone."""

    data: bytes
    #: The absolute position of the first byte of `data`.
    position: int
    #: How many of the bytes asked for, just before `position`, are no longer kept.
    lost: int


def bounds(since: int, max_bytes: int | None, start: int, end: int) -> tuple[int, int]:
    """Return where a read begins that asks for what is behind `since`, and how long it is.

    `start` and `end` are of what can be read. Raises `ValueError` for a position that is not in the
    stream so far, or a negative `max_bytes`.
    """
    if not 0 <= since <= end:
        raise ValueError(f"no such position: {since}; the stream is at 0 to {end}")
    if max_bytes is not None and max_bytes < 0:
        raise ValueError(f"max_bytes must be 0 or more, not {max_bytes}")
    position = max(since, start)
    length = end - position
    return position, length if max_bytes is None else min(length, max_bytes)


class Ring:
    """The last `capacity` bytes of a stream; capacity 0 keeps nothing but counts."""

    __slots__ = ("_buffer", "_end", "capacity")

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"the capacity of a ring must be 0 bytes or more, not {capacity}")
        self.capacity = capacity
        self._buffer = bytearray()
        self._end = 0

    @property
    def start(self) -> int:
        """The position of the oldest byte kept; equal to `end` when nothing is."""
        return max(0, self._end - self.capacity)

    @property
    def end(self) -> int:
        """The position that the next byte written will have."""
        return self._end

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Append `data`, dropping the oldest bytes beyond the capacity."""
        written = len(data)
        buffer, capacity = self._buffer, self.capacity
        if self._end + written <= capacity:
            buffer += data
            self._end += written
            return
        self._end += written
        if not capacity:
            return
        if len(buffer) < capacity:
            # At once, and without a second copy of what may be much.
            self._buffer = bytearray(capacity)
            self._buffer[: len(buffer)] = buffer
            buffer = self._buffer
        kept = min(written, capacity)
        index = (self._end - kept) % capacity
        first = min(kept, capacity - index)
        # Between memoryviews an assignment is one memcpy; into a bytearray it is two.
        with memoryview(buffer) as target, memoryview(data) as source:
            tail = source[written - kept :]
            target[index : index + first] = tail[:first]
            target[: kept - first] = tail[first:]

    def read(self, since: int, max_bytes: int | None = None) -> Slice:
        """Return what is kept of the stream from position `since` on.

        At most `max_bytes` bytes, the oldest first; None is all of them. Raises ValueError
        if `since` is not a position of the stream so far (0 to `end`), or if `max_bytes`
        is negative.
        """
        position, length = bounds(since, max_bytes, self.start, self._end)
        return Slice(self._copy(position, length), position, position - since)

    def _copy(self, position: int, length: int) -> bytes:
        if not length:
            return b""
        index = position % self.capacity
        with memoryview(self._buffer) as buffer:
            if index + length <= self.capacity:
                return bytes(buffer[index : index + length])
            return b"".join((buffer[index:], buffer[: index + length - self.capacity]))
