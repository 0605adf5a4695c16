"""A ring in this process's own memory, for the text of terminals that an agent runs itself.

The output of all other terminals is in a `shared_ring`, which the keeper fills. `Slice` and
`bounds` serve both kinds of ring.

Rules of a ring:

- The first byte of the stream has position 0. Positions only grow and are never reused.
- The bytes with `start <= position < end` are retained; `end - start` never exceeds the capacity.
- A reader requests the bytes from a position on. The result says how many of them are lost.
- Until the capacity is reached, the buffer is as long as the stream. From then on the byte at
  position p has the index p modulo capacity in the buffer.
"""

from __future__ import annotations

from typing import NamedTuple


class Slice(NamedTuple):
    """The result of a read of a ring: consecutive bytes of the output."""

    data: bytes
    #: The position of the first byte of `data`.
    position: int
    #: The number of requested bytes before `position`, which are no longer retained.
    lost: int


def bounds(since: int, max_bytes: int | None, start: int, end: int) -> tuple[int, int]:
    """Return the position at which a read begins, and how many bytes it returns.

    Raises `ValueError` if `since` is negative or after `end`, or if `max_bytes` is negative.
    """
    if not 0 <= since <= end:
        raise ValueError(f"no such position: {since}; the stream is at 0 to {end}")
    if max_bytes is not None and max_bytes < 0:
        raise ValueError(f"max_bytes must be 0 or more, not {max_bytes}")
    position = max(since, start)
    length = end - position
    return position, length if max_bytes is None else min(length, max_bytes)


class PrivateRing:
    """The last `capacity` bytes of a stream; with capacity 0 only the positions grow."""

    __slots__ = ("_buffer", "_end", "capacity")

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"the capacity of a ring must be 0 bytes or more, not {capacity}")
        self.capacity = capacity
        self._buffer = bytearray()
        self._end = 0

    @property
    def start(self) -> int:
        return max(0, self._end - self.capacity)

    @property
    def end(self) -> int:
        return self._end

    def write(self, data: bytes | bytearray | memoryview) -> None:
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
            # Allocate the whole buffer at once: growing it step by step would copy it each time.
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
        """Return the retained bytes from position `since` on. Raises `ValueError` as `bounds`."""
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
