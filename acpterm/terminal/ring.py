"""A ring of the last `capacity` bytes of a stream, by absolute position.

States and rules:

- The first byte of the stream has position 0. Positions only grow and are never reused.
- The bytes with `start <= position < end` are retained; `end - start` never exceeds the capacity.
- A reader asks for "everything since N" and learns how many of those bytes are lost.
- Until the capacity is reached the buffer is as long as the stream; from then on the byte at
  position p is at index p modulo capacity.
"""

from __future__ import annotations

from typing import NamedTuple


class Slice(NamedTuple):
    """A run of the stream, and how many bytes before it are lost."""

    data: bytes
    #: The absolute position of the first byte of `data`.
    position: int
    #: How many of the bytes asked for, just before `position`, are no longer retained.
    lost: int


def bounds(since: int, max_bytes: int | None, start: int, end: int) -> tuple[int, int]:
    """Return the position and the length of a read from `since` on.

    The bytes from `start` to `end` can be read. Raises `ValueError` for a position that the stream
    has not reached, or a negative `max_bytes`.
    """
    if not 0 <= since <= end:
        raise ValueError(f"no such position: {since}; the stream is at 0 to {end}")
    if max_bytes is not None and max_bytes < 0:
        raise ValueError(f"max_bytes must be 0 or more, not {max_bytes}")
    position = max(since, start)
    length = end - position
    return position, length if max_bytes is None else min(length, max_bytes)


class Ring:
    """The last `capacity` bytes of a stream. Capacity 0 retains nothing, and counts."""

    __slots__ = ("_buffer", "_end", "capacity")

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"the capacity of a ring must be 0 bytes or more, not {capacity}")
        self.capacity = capacity
        self._buffer = bytearray()
        self._end = 0

    @property
    def start(self) -> int:
        """The position of the oldest byte retained; equal to `end` if there is none."""
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
            # Allocate it all at once: growing would copy a large buffer.
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
        """Return what is retained from position `since` on: at most `max_bytes`, or all.

        Raises `ValueError` if `since` is not between 0 and `end`, or `max_bytes` is negative.
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
