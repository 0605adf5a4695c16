"""A ring in this process's own memory, for the text of terminals that an agent runs itself.

The output of all other terminals is in a `shared_ring`, which the keeper fills. `Slice` and
`bounds` serve both kinds of ring.

Rules of a ring:

- The first byte of the stream has position 0. Positions only grow and are never reused.
- The bytes with `start <= position < end` are retained; `end - start` never exceeds the capacity.
- A reader requests the bytes from a position on. The result says how many of them are lost.
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

    __slots__ = ("_buffer", "capacity", "end")

    def __init__(self, capacity: int) -> None:
        if capacity < 0:
            raise ValueError(f"the capacity of a ring must be 0 bytes or more, not {capacity}")
        self.capacity = capacity
        #: The position that the next byte written will have.
        self.end = 0
        self._buffer = bytearray()

    @property
    def start(self) -> int:
        """The position of the oldest retained byte; equal to `end` if no byte is retained."""
        return self.end - len(self._buffer)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.end += len(data)
        with memoryview(data) as view:
            tail = view[max(0, len(view) - self.capacity) :]
            # Before the buffer grows. A bytearray drops bytes at its beginning without a copy.
            del self._buffer[: max(0, len(self._buffer) + len(tail) - self.capacity)]
            self._buffer += tail

    def read(self, since: int, max_bytes: int | None = None) -> Slice:
        """Return the retained bytes from position `since` on. Raises `ValueError` as `bounds`."""
        position, length = bounds(since, max_bytes, self.start, self.end)
        with memoryview(self._buffer) as buffer:
            index = position - self.start
            return Slice(bytes(buffer[index : index + length]), position, position - since)
