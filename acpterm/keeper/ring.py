"""The ring file of a terminal: its output, in memory that keeper and worker share.

Layout: a header of native 64-bit words; a record area, which ends at `DATA_OFFSET`; then
`capacity` bytes of output. The byte at position p of the stream lies at
`DATA_OFFSET + p % capacity`. Positions only grow. New words come last: keeper and worker may be of
different versions.

| word | written by | is |
| --- | --- | --- |
| `MAGIC` | keeper, once | identifies the layout |
| `CAPACITY` | keeper, once | bytes of output that fit |
| `HEAD` | keeper | end of what is written |
| `RESERVED` | keeper | upper bound of the write in progress; `HEAD` when there is none |
| `CONSUMED` | worker | everything before it may be overwritten |
| `STALLED` | keeper | 1 while the PTY is not read for want of room |
| `ARMED` | worker sets, keeper clears | 1 while the worker waits for more |
| `EMULATOR` | worker | position + 1 while the emulator is fed, else 0 |
| `REPLIED` | worker | replies to queries before this position were sent |
| `RECORD` | keeper | where the record lies: offset << 32 or-ed with its length; 0: none |
| `PID`, `STARTED` | keeper, once | the child; its start time in microseconds since boot |
| `EXITED` | keeper | wait status + 1 once it is reaped, `EXITED_UNKNOWN`, or 0 |
| `EXIT_END`, `EXIT_CPU`, `EXIT_RSS`, `EXIT_AT` | keeper | the rest of the report; microseconds |
| `CLOSED` | keeper | end + 1 once the terminal is closed, or 0 |
| `EMULATOR_KILLS` | keeper | how often a worker was killed while the emulator was fed |

The keeper clears `EMULATOR` behind a worker that ended in any other way than by a crash; where the
worker was killed, it counts that in `EMULATOR_KILLS`, and clears it no more the third time.

The keeper keeps `RESERVED <= CONSUMED + capacity`: what is not consumed is never overwritten.

A reader copies, then checks: of a copy of [p, p + n) the bytes at positions of at least
`RESERVED - capacity`, as it reads after the copy, are valid.

The record is written beside the present one, then `RECORD` is set, in one store: a keeper that dies
in the middle leaves the record before it.
"""

from __future__ import annotations

import mmap
import os
import sys

from acpterm.keeper.protocol import unlinked_file

HEADER_WORDS = 32
RECORD_OFFSET = HEADER_WORDS * 8
RECORD_AREA_BYTES = 64 * 1024
DATA_OFFSET = 4096 + RECORD_AREA_BYTES
CAPACITY_MIN_BYTES = 64 * 1024
_PAGE_BYTES = mmap.PAGESIZE
_MAGIC = int.from_bytes(b"acprng\x00\x01", "little")

(
    MAGIC,
    CAPACITY,
    HEAD,
    RESERVED,
    CONSUMED,
    STALLED,
    ARMED,
    EMULATOR,
    REPLIED,
    RECORD,
    PID,
    STARTED,
    EXITED,
    EXIT_END,
    EXIT_CPU,
    EXIT_RSS,
    EXIT_AT,
    CLOSED,
    EMULATOR_KILLS,
) = range(19)

EXITED_UNKNOWN = 1 << 32
# Python 3.13 can map a file without keeping a duplicate of its descriptor.
_MAP_OPTIONS = {"trackfd": False} if sys.version_info >= (3, 13) else {}


# What a read that may be the keeper's last is expected to overwrite: no byte of valid UTF-8.
UNREAD = b"\xff" * 4096


class RingError(Exception):
    """A file that should be a ring file is none; the message says how it differs."""


class RingFile:
    """One ring file, mapped. `close` unmaps it; the descriptor stays its owner's."""

    __slots__ = ("_map", "_record_area", "capacity", "data", "header")

    def __init__(self, mapped: mmap.mmap) -> None:
        view = memoryview(mapped)
        self._map = mapped
        self.header = view[:RECORD_OFFSET].cast("Q")
        """The words; index it with the constants of this module."""
        self._record_area = view[RECORD_OFFSET:DATA_OFFSET]
        self.data = view[DATA_OFFSET:]
        self.capacity: int = len(self.data)

    def close(self) -> None:
        """Unmap the file. Views of `data` that others hold keep it mapped until they go."""
        for view in (self.header, self._record_area, self.data):
            view.release()
        try:
            self._map.close()
        except BufferError:
            return

    def free_bytes(self) -> int:
        """Return how many bytes can be written without overwriting what is not consumed."""
        header = self.header
        return header[CONSUMED] + self.capacity - header[HEAD]

    def release_free_pages(self) -> None:
        """Give the memory behind the room back to the system, where that can be done (Linux).

        For the keeper, or for a worker once the keeper has written its last byte: what is written
        meanwhile would be lost.
        """
        if not hasattr(mmap, "MADV_REMOVE"):
            return
        room, at = self.free_bytes(), self.header[HEAD] % self.capacity
        wrapped = max(0, at + room - self.capacity)
        for begin, end in ((at, at + room - wrapped), (0, wrapped)):
            first = -(-(DATA_OFFSET + begin) // _PAGE_BYTES) * _PAGE_BYTES
            behind = (DATA_OFFSET + end) // _PAGE_BYTES * _PAGE_BYTES
            if first < behind:
                try:
                    self._map.madvise(mmap.MADV_REMOVE, first, behind - first)
                except OSError:
                    return

    def read(self, since: int, max_bytes: int) -> tuple[int, bytes]:
        """Return the position and the bytes of what is there at `since` or, if gone, after it.

        Nothing at all is returned as the position where the next byte will be.
        """
        header, data, capacity = self.header, self.data, self.capacity
        end = header[HEAD]
        start = min(max(since, end - capacity, 0), end)
        stop = min(start + max_bytes, end)
        at, size = start % capacity, stop - start
        copy = bytes(data[at : at + size])
        if len(copy) < size:
            copy += bytes(data[: size - len(copy)])
        valid = header[RESERVED] - capacity
        if valid > start:
            copy = copy[valid - start :]
            start = min(valid, end)
        return start, copy

    def mark_unread(self, head: int, end: int) -> None:
        """Fill what the next read is to overwrite, so that `recover` can tell how much it took.

        A PTY gives at most `UNREAD` bytes at a time.
        """
        at = head % self.capacity
        size = min(end - head, len(UNREAD), self.capacity - at)
        self.data[at : at + size] = UNREAD[:size]

    def recover(self) -> None:
        """Count what a keeper that was killed in the middle of a read had taken by then."""
        header = self.header
        head, end = header[HEAD], header[RESERVED]
        at = head % self.capacity
        taken = bytes(self.data[at : at + min(end - head, len(UNREAD))]).rstrip(UNREAD[:1])
        header[HEAD] = head + len(taken)
        header[RESERVED] = header[HEAD]

    def write_record(self, record: bytes) -> bool:
        """Replace the record; False, and the record before it stays, when it does not fit."""
        place = self.header[RECORD]
        offset, length = place >> 32, place & 0xFFFF_FFFF
        size = len(record)
        # Where it is not in the way of the present one; low, so that few pages are used.
        start = 0 if place == 0 or size <= offset else offset + length
        if start + size > len(self._record_area):
            return False
        self._record_area[start : start + size] = record
        self.header[RECORD] = start << 32 | size
        return True

    def record(self) -> bytes:
        """Return the record; empty when there is none."""
        place = self.header[RECORD]
        offset, length = place >> 32, place & 0xFFFF_FFFF
        return bytes(self._record_area[offset : offset + length])


def capacity_for(ring_size: int) -> int:
    """Return the capacity of a ring that was asked to hold `ring_size` bytes."""
    return -(-max(ring_size, CAPACITY_MIN_BYTES) // _PAGE_BYTES) * _PAGE_BYTES


def create_ring(ring_size: int) -> tuple[int, RingFile]:
    """Create and map a ring file: its descriptor, which is the caller's, and the mapping.

    Raises `OSError` when there is no descriptor or no memory for it.
    """
    capacity = capacity_for(ring_size)
    fd = unlinked_file("acpterm-ring")
    try:
        os.ftruncate(fd, DATA_OFFSET + capacity)
        ring = RingFile(mmap.mmap(fd, DATA_OFFSET + capacity, **_MAP_OPTIONS))
    except BaseException:
        os.close(fd)
        raise
    ring.header[MAGIC] = _MAGIC
    ring.header[CAPACITY] = capacity
    return fd, ring


def map_ring(fd: int) -> RingFile:
    """Map a ring file that is there. Raises `RingError` for any other file, and `OSError`."""
    size = os.fstat(fd).st_size
    if size < DATA_OFFSET + CAPACITY_MIN_BYTES:
        raise RingError(
            f"a ring file has at least {DATA_OFFSET + CAPACITY_MIN_BYTES} bytes: {size}"
        )
    ring = RingFile(mmap.mmap(fd, size, **_MAP_OPTIONS))
    magic, capacity = ring.header[MAGIC], ring.header[CAPACITY]
    if magic != _MAGIC or capacity != ring.capacity:
        ring.close()
        raise RingError(f"not a ring file of this layout: magic {magic:#x}, capacity {capacity}")
    return ring
