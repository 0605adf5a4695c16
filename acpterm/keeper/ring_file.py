"""The ring file of a terminal: its output, in memory that keeper and worker share.

This module defines the layout for both processes, and has the keeper's operations. The worker's
operations are in `terminal.shared_ring`.

Layout: a header of native 64-bit words; a record area, which ends at `DATA_OFFSET`; then
`capacity` bytes of output. The byte at position p of the stream is at `DATA_OFFSET + p % capacity`.
Positions only grow. New words are added at the end, since keeper and worker may be of different
versions.

| word | written by | content |
| --- | --- | --- |
| `MAGIC` | keeper, once | identifies the layout |
| `CAPACITY` | keeper, once | capacity in bytes of output |
| `HEAD` | keeper | end of the output written so far |
| `RESERVED` | keeper | upper bound of the write in progress; `HEAD` when there is none |
| `CONSUMED` | worker | everything before this position may be overwritten |
| `STALLED` | keeper | 1 while the PTY is not read because the ring is full |
| `ARMED` | worker sets, keeper clears | 1 while the worker waits for more output |
| `EMULATOR` | worker sets, both clear | position + 1 while the emulator processes output, else 0 |
| `REPLIED` | worker | replies to queries before this position were sent |
| `RECORD` | keeper | location of the record: `(offset << 32) + length`; 0 if there is none |
| `PID`, `STARTED` | keeper, once | the child's pid; its start time in microseconds since boot |
| `EXITED` | keeper | 0 until the child is reaped; then wait status + 1, or `EXITED_UNKNOWN` |
| `EXIT_END` | keeper | position at which the child's output ends |
| `EXIT_CPU` | keeper | the child's CPU time in microseconds |
| `EXIT_RSS` | keeper | the child's peak resident memory in bytes |
| `EXIT_AT` | keeper | time of reaping in microseconds since boot |
| `CLOSED` | keeper | 0 until the terminal is closed; then the end of the output + 1 |
| `EMULATOR_KILLS` | keeper | how often a worker was killed while `EMULATOR` was set |
| `MARKED` | keeper | start + 1 of the space that `mark_unread` has filled, else 0 |
| `SESSION` | keeper, once | the pid of the leader of the terminal's session; 0 if the child is it |
| `WRITTEN_AT` | keeper | time of the last write in microseconds of `time.monotonic`, or 0 |
| `ENCODING` | keeper | the encoding of the program's output (`encodings`); 0 for UTF-8 |
| `WRITE_TOKEN` | worker | the token of the last write that has one; 0 if there was none |
| `WRITE_LEFT` | worker | how many bytes of it are not typed yet; or `INTERRUPTED` |

If a worker crashed, the keeper leaves `EMULATOR` as it is; after any other end, the keeper clears
it. But if a worker was killed while `EMULATOR` was set, the keeper first increments
`EMULATOR_KILLS`; from the third kill on, it leaves `EMULATOR` set.

The keeper maintains `RESERVED <= CONSUMED + capacity`: unconsumed output is never overwritten.

The *record* is the terminal's state for the next worker. A new record is written beside the current
record; then a single store sets `RECORD`. A keeper that dies while it writes leaves the current
record intact.
"""

from __future__ import annotations

import mmap
import os
import sys

from acpterm.keeper.protocol import unlinked_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acpterm.keeper.programs.decoding import Decoder

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
    MARKED,
    SESSION,
    WRITTEN_AT,
    ENCODING,
    WRITE_TOKEN,
    WRITE_LEFT,
) = range(25)

EXITED_UNKNOWN = 1 << 32
# In `WRITE_LEFT`: the rest was dropped for a character that sends a signal.
INTERRUPTED = (1 << 64) - 1
# Python 3.13 can map a file without keeping a duplicate of its descriptor.
_MAP_OPTIONS = {"trackfd": False} if sys.version_info >= (3, 13) else {}


# Fills the space of the next read, for `recover`; 0xff does not occur in valid UTF-8.
UNREAD = b"\xff" * 4096


class RingError(Exception):
    """A file is not a valid ring file; the message says why."""


class RingFile:
    """A ring file, mapped into memory. Does not own a descriptor of the file."""

    __slots__ = ("_map", "_record_area", "capacity", "data", "decoder", "header")

    def __init__(self, mapped: mmap.mmap) -> None:
        view = memoryview(mapped)
        self._map = mapped
        # words; the constants of this module are their indices
        self.header = view[:RECORD_OFFSET].cast("Q")
        self._record_area = view[RECORD_OFFSET:DATA_OFFSET]
        self.data = view[DATA_OFFSET:]  # the byte at position p has the index `p % capacity`
        self.capacity: int = len(self.data)
        #: The keeper's decoder of output that is not UTF-8, once there is such output.
        self.decoder: Decoder | None = None

    def close(self) -> None:
        """Unmap the file, now or when the last view of `data` is released."""
        for view in (self.header, self._record_area, self.data):
            view.release()
        try:
            self._map.close()
        except BufferError:
            return

    def append(self, data: bytes) -> None:
        """Write `data` at `HEAD`. There must be room, and `RESERVED` must be set."""
        head = self.header[HEAD]
        at = head % self.capacity
        first = min(len(data), self.capacity - at)
        self.data[at : at + first] = data[:first]
        self.data[: len(data) - first] = data[first:]
        self.header[HEAD] = head + len(data)

    def free_bytes(self) -> int:
        """Return how many bytes can be written without overwriting unconsumed output."""
        header = self.header
        return header[CONSUMED] + self.capacity - header[HEAD]

    def release_free_pages(self) -> None:
        """Release the memory of the ring's free space to the system (Linux)."""
        # Only by the keeper, or once it writes no more: output written meanwhile would be lost.
        if not hasattr(mmap, "MADV_REMOVE"):
            return
        size, at = self.free_bytes(), self.header[HEAD] % self.capacity
        wrapped = max(0, at + size - self.capacity)
        for begin, end in ((at, at + size - wrapped), (0, wrapped)):
            start = -(-(DATA_OFFSET + begin) // _PAGE_BYTES) * _PAGE_BYTES
            stop = (DATA_OFFSET + end) // _PAGE_BYTES * _PAGE_BYTES
            if start < stop:
                try:
                    self._map.madvise(mmap.MADV_REMOVE, start, stop - start)
                except OSError:
                    return

    def mark_unread(self, head: int, end: int) -> None:
        """Fill the space for the next read of the PTY with 0xff bytes, for `recover`."""
        # By what remains of them, `recover` finds how much was read. A single read returns no more
        # than `len(UNREAD)` bytes.
        at = head % self.capacity
        size = min(end - head, len(UNREAD), self.capacity - at)
        # A keeper that is killed while it fills the space leaves old output in the space. `recover`
        # must not take that for new output.
        self.header[MARKED] = 0
        self.data[at : at + size] = UNREAD[:size]
        self.header[MARKED] = head + 1

    def recover(self) -> None:
        """Restore the last read, if the keeper was killed before it updated `HEAD`."""
        # What continued at the beginning of the ring's memory is lost.
        header = self.header
        head = header[HEAD]
        end = header[RESERVED] if header[MARKED] == head + 1 else head
        at = head % self.capacity
        read = bytes(self.data[at : at + min(end - head, len(UNREAD))]).rstrip(UNREAD[:1])
        header[HEAD] = head + len(read)
        header[RESERVED] = header[HEAD]

    def write_record(self, record: bytes) -> bool:
        """Replace the terminal's state for the next worker, unless it does not fit."""
        location = self.header[RECORD]
        offset, length = location >> 32, location & 0xFFFF_FFFF
        size = len(record)
        # The new record must not overlap the current one. It is put before the current one if it
        # fits there, which uses fewer memory pages.
        start = 0 if location == 0 or size <= offset else offset + length
        if start + size > len(self._record_area):
            return False
        self._record_area[start : start + size] = record
        self.header[RECORD] = start << 32 | size
        return True

    def record(self) -> bytes:
        location = self.header[RECORD]
        offset, length = location >> 32, location & 0xFFFF_FFFF
        return bytes(self._record_area[offset : offset + length])


def capacity_for(ring_size: int) -> int:
    """Return the capacity of a ring of at least `ring_size` bytes: whole pages."""
    return -(-max(ring_size, CAPACITY_MIN_BYTES) // _PAGE_BYTES) * _PAGE_BYTES


def create_ring(ring_size: int) -> tuple[int, RingFile]:
    """Create and map a ring file; the caller owns the descriptor. Raises `OSError`."""
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
    """Map an existing ring file. The caller keeps `fd`. Raises `OSError` or `RingError`."""
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
