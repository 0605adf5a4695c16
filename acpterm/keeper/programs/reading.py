"""Reading PTY masters into rings.

On Linux a worker of the kernel moves output from the program's side of a PTY to ours, in steps of 4
KiB. A reader that sleeps and is woken for each step is a quarter slower than one that stays awake.
So there are three ways to read; which one is right depends on what else there is to do.
"""

from __future__ import annotations

import array
import fcntl
import os
import termios
import time

from acpterm.keeper.ring import CONSUMED, HEAD, RESERVED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.ring import RingFile

# Ways to read.
PLAIN = 0
"""Until there is nothing more. A read waits for the kernel's worker before it says so: the one way
to know that everything was read that had been written before."""
GATHER = 1
"""As `PLAIN`, and longer, for speed, until anything else is ready. Once 1 KiB or more has come, a
PTY found empty gets a little time to fill again: the processor is yielded, up to `_YIELDS_MAX`
times, or until one yield has taken long. `EMPTY` means that nothing came in that time."""
AVAILABLE = 2
"""What is there already. Never waits for the kernel's worker, which on a machine with more programs
than processors may take milliseconds. `EMPTY` says little."""

# What a read found behind the bytes that it took.
EMPTY = 0
LIMIT_REACHED = 1
"""As much as was asked for was read, and there may be more."""
RING_FULL = 2
"""The ring is full of what is not consumed."""
HUNG_UP = 3
"""No process has the PTY's slave open. Final once the child is gone; while it runs, a process of
its session may open `/dev/tty` again."""

_YIELDS_MAX = 50
# While more is there all the time, others are looked for once in so many reads of 4 KiB.
_LOOK_AROUND_STEPS = 8
_LOOK_AROUND_YIELDS = 4
_YIELD_MAX_S = 0.001
_GATHER_MAX_S = 0.003
# No gathering for this long after a yield that took too long: the processors are busy.
_IMPATIENCE_S = 0.05
_FLOOD_BYTES = 1024
# Not everywhere; where there is none, looking again is all the patience there is.
_yield = getattr(os, "sched_yield", lambda: None)
_monotonic = time.monotonic


class Reader:
    """Reads masters into rings, for one loop.

    `recoverable`: whether another keeper may go on with the rings if this one is killed; it is to
    find what a read had taken by then.
    """

    def __init__(self, loop: Loop, *, recoverable: bool = False) -> None:
        self._loop = loop
        self._recoverable = recoverable
        self._impatient_until = 0.0
        self._steps = 0
        self._waiting = array.array("i", (0,))

    def read(self, master: int, ring: RingFile, bound: int, how: int) -> int:
        """Read at most `bound` bytes into the ring; return what came after them."""
        header = ring.header
        head = header[HEAD]
        limit = header[CONSUMED] + ring.capacity
        end = min(head + min(bound, ring.capacity), limit)
        if end <= head:
            return RING_FULL
        header[RESERVED] = end
        try:
            after = self._read(master, ring, end, how)
        finally:
            header[RESERVED] = header[HEAD]
        return RING_FULL if header[HEAD] == limit else after

    def _read(self, master: int, ring: RingFile, end: int, how: int) -> int:
        header, data, capacity = ring.header, ring.data, ring.capacity
        start = head = header[HEAD]
        deadline = _monotonic() + _GATHER_MAX_S if how == GATHER else 0.0
        while head < end:
            # The first read is of a PTY that is ready: with output, or because it has hung up.
            if how == AVAILABLE and head != start and not self._waiting_bytes(master):
                return EMPTY
            at, stop = head % capacity, head % capacity + end - head
            wrapped = [data[: stop - capacity]] if stop > capacity else []
            if self._recoverable:
                ring.mark_unread(head, end)
            try:
                got = os.readv(master, [data[at:stop], *wrapped])
            except BlockingIOError:
                if (
                    how != GATHER
                    or head - start < _FLOOD_BYTES
                    or not self._wait_for_more(master, deadline)
                ):
                    return EMPTY
                continue
            except OSError:  # EIO; nothing else is known to happen
                return HUNG_UP
            if got == 0:  # how other systems than Linux report it
                return HUNG_UP
            head += got
            header[HEAD] = head
            if how == GATHER:
                self._steps += 1
                if self._steps % _LOOK_AROUND_STEPS == 0 and self._loop.others_ready(master):
                    return LIMIT_REACHED
        return LIMIT_REACHED

    def _waiting_bytes(self, master: int) -> int:
        try:
            fcntl.ioctl(master, termios.FIONREAD, self._waiting)
        except OSError:
            return 1  # the read says what is wrong
        return self._waiting[0]

    def _wait_for_more(self, master: int, deadline: float) -> bool:
        """Return whether more has come to a PTY that was empty, for which this waits a little.

        Everything else goes first: a quiet terminal shall not wait for a flood.
        """
        for attempt in range(_YIELDS_MAX):
            before = _monotonic()
            if before > deadline or before < self._impatient_until:
                return False
            _yield()
            after = _monotonic()
            if after - before > _YIELD_MAX_S:
                self._impatient_until = after + _IMPATIENCE_S
                return False
            if self._waiting_bytes(master):
                return True
            if attempt % _LOOK_AROUND_YIELDS == 0 and self._loop.others_ready(master):
                return False
        return False
