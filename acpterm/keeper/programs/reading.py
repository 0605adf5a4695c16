"""Read the output of programs from the masters of their PTYs into rings.

On Linux a kernel thread moves output from a PTY's slave to its master, in steps of 4 KiB. A reader
that sleeps and is woken for each step is 25 % slower than a reader that stays awake. So there are
three ways to read: `GATHER`, used if no other descriptor is ready, waits a short time for more
output; `AVAILABLE`, used otherwise, does not wait; `PLAIN`, used after the child has ended, reads
all that is left.
"""

from __future__ import annotations

import array
import fcntl
import os
import termios
import time

from acpterm.keeper.encodings import GROWTH
from acpterm.keeper.ring_file import CONSUMED, ENCODING, HEAD, RESERVED, WRITTEN_AT

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs.decoding import Decoder
    from acpterm.keeper.ring_file import RingFile

# Ways to read.

# Read until the PTY is empty. Before the kernel reports an empty PTY, it waits for the thread that
# moves output from the slave to the master: only this way is certain to read all that was written
# before.
PLAIN = 0
# For throughput, read until the PTY stays empty or another descriptor is ready. After 1 KiB an
# empty PTY gets some time to fill again: the reader yields up to `_YIELDS_MAX` times, or until one
# yield takes long.
GATHER = 1
# Read only what has arrived at the master: the kernel's thread may take milliseconds on a busy
# machine. `EMPTY` does not mean that all was read.
AVAILABLE = 2

# Why a read stopped.
EMPTY = 0
LIMIT_REACHED = 1  # or other descriptors are ready; more may be left
RING_FULL = 2  # of unconsumed output
# No process has the slave open. While the child runs, one of its session may still open `/dev/tty`
# again; once it has ended, the hang-up is final.
HUNG_UP = 3

_YIELDS_MAX = 50
# How many reads of 4 KiB, or yields, there are between two polls of other descriptors.
_POLL_OTHERS_READS = 8
_POLL_OTHERS_YIELDS = 4
_YIELD_MAX_S = 0.001
_GATHER_MAX_S = 0.003
# After a yield that took too long, because the CPUs are busy, do not yield for this time.
_NO_YIELD_S = 0.05
_FLOOD_BYTES = 1024
# Output that is converted is read in pieces of this size, if the ring has room for what it becomes.
_CONVERTED_BYTES = 4096
_CONVERTED_ROOM = GROWTH * (_CONVERTED_BYTES + 8)
# On a system without sched_yield the PTY is just checked again.
_yield = getattr(os, "sched_yield", lambda: None)
_monotonic = time.monotonic


def new_decoder(word: int) -> Decoder:
    from acpterm.keeper.programs.decoding import Decoder  # noqa: PLC0415  rarely needed, and large

    return Decoder(word)


def room(ring: RingFile) -> int:
    """Return how many bytes `ring` has room for. Without room for a read, the ring is full."""
    return ring.free_bytes() - (_CONVERTED_ROOM if ring.header[ENCODING] else 0)


class Reader:
    """Reads the masters of PTYs into rings; `recoverable` by `RingFile.recover`."""

    def __init__(self, loop: Loop, *, recoverable: bool = False) -> None:
        self._loop = loop
        self._recoverable = recoverable
        self._no_yield_until = 0.0
        self._reads = 0
        self._waiting = array.array("i", (0,))

    def read(self, master: int, ring: RingFile, max_bytes: int, how: int) -> int:
        """Read at most `max_bytes` in one of the ways; return why the read stopped."""
        header = ring.header
        head = header[HEAD]
        limit = header[CONSUMED] + ring.capacity
        end = min(head + min(max_bytes, ring.capacity), limit)
        if header[ENCODING]:
            end = limit
        if end == head or room(ring) <= 0:
            return RING_FULL
        header[RESERVED] = end
        try:
            if header[ENCODING]:
                after = self._read_converted(master, ring, head + max_bytes, how)
            else:
                after = self._read(master, ring, end, how)
        finally:
            header[RESERVED] = header[HEAD]
        if header[HEAD] != head:
            header[WRITTEN_AT] = int(_monotonic() * 1e6)
        return RING_FULL if header[HEAD] == limit else after

    def _read(self, master: int, ring: RingFile, end: int, how: int) -> int:
        header, data, capacity = ring.header, ring.data, ring.capacity
        start = head = header[HEAD]
        deadline = _monotonic() + _GATHER_MAX_S if how == GATHER else 0.0
        while head < end:
            # The PTY is ready for the first read: it has output or has hung up.
            if how == AVAILABLE and head != start and not self._waiting_bytes(master):
                return EMPTY
            # A read ends at the end of the ring: `recover` restores no output from there on.
            at = head % capacity
            stop = min(at + end - head, capacity)
            if self._recoverable:
                ring.mark_unread(head, end)
            try:
                got = os.readv(master, [data[at:stop]])
            except BlockingIOError:
                if (
                    how != GATHER
                    or head - start < _FLOOD_BYTES
                    or not self._wait_for_more(master, deadline)
                ):
                    return EMPTY
                continue
            except OSError:  # EIO; no other error is known to occur
                return HUNG_UP
            if got == 0:  # how systems other than Linux report a hang-up
                return HUNG_UP
            head += got
            header[HEAD] = head
            if how == GATHER:
                self._reads += 1
                if self._reads % _POLL_OTHERS_READS == 0 and self._loop.others_ready(master):
                    return LIMIT_REACHED
        return LIMIT_REACHED

    def _read_converted(self, master: int, ring: RingFile, end: int, how: int) -> int:
        header = ring.header
        if ring.decoder is None:
            ring.decoder = new_decoder(header[ENCODING])
        while header[HEAD] < end:
            if room(ring) <= 0:
                return RING_FULL
            try:
                data = os.read(master, _CONVERTED_BYTES)
            except BlockingIOError:
                return EMPTY
            except OSError:
                data = b""
            ring.append(ring.decoder.feed(data, final=not data))
            header[ENCODING] = ring.decoder.word
            if not data:
                return HUNG_UP
            if how == AVAILABLE and not self._waiting_bytes(master):
                return EMPTY
        return LIMIT_REACHED

    def _waiting_bytes(self, master: int) -> int:
        try:
            fcntl.ioctl(master, termios.FIONREAD, self._waiting)
        except OSError:
            return 1  # the following read reports the error
        return self._waiting[0]

    def _wait_for_more(self, master: int, deadline: float) -> bool:
        """Wait a short time for output; False as soon as another descriptor is ready."""
        for attempt in range(_YIELDS_MAX):
            before = _monotonic()
            if before > deadline or before < self._no_yield_until:
                return False
            _yield()
            after = _monotonic()
            if after - before > _YIELD_MAX_S:
                self._no_yield_until = after + _NO_YIELD_S
                return False
            if self._waiting_bytes(master):
                return True
            if attempt % _POLL_OTHERS_YIELDS == 0 and self._loop.others_ready(master):
                return False
        return False
