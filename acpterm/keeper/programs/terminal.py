"""One terminal in the keeper: a program, its PTY, and the ring that its output goes into.

States of the child:

    running --it has ended--> ended --drained--> exited
       running --a debugger holds it--> ended, and looked at again every `TRACED_RETRY_S`

A child that has *ended* is a zombie: its pid is still its own. Before it is reaped the PTY is read
until it is empty, so that `exited` comes after everything that the child wrote. If other processes
hold the PTY open, `DRAIN_BYTES` more are read at most. If the ring is full, the drain waits for
room.

States of the PTY:

    polled <--> stalled (the ring is full)
    polled <--> idle (no process has the slave open: looked at every `IDLE_RETRY_S`)
    each --> shut (the child has exited and the PTY has hung up, or the worker closed it)

Exited and shut is *closed*: the ring is unmapped, and what a successor needs is kept.
"""

from __future__ import annotations

import os
import sys
import time

from acpterm.keeper.programs import reading
from acpterm.keeper.ring import (
    ARMED,
    CLOSED,
    EXIT_AT,
    EXIT_CPU,
    EXIT_END,
    EXIT_RSS,
    EXITED,
    EXITED_UNKNOWN,
    HEAD,
    STALLED,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable
    from typing import TypeAlias

    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs.reading import Reader
    from acpterm.keeper.ring import RingFile

    # wait status (None: unknown), seconds of CPU, bytes of RSS, when reaped, end.
    Exit: TypeAlias = tuple[int | None, float, int, float, int]

TRACED_RETRY_S = 0.02
IDLE_RETRY_S = 0.05
DRAIN_BYTES = 256 * 1024
# Reading into a little room again and again costs more than to wait for more of it. What the worker
# does not announce, and what stays little, is found after a moment.
_RESUME_FRACTION = 0.25
_STALLED_RETRY_S = 0.05
_TURN_BYTES = 256 * 1024
_SHARED_TURN_BYTES = 64 * 1024
_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Terminals:
    """All terminals by name, and what they have in common.

    `exited` and `closed` are called once for each terminal that is not forgotten, in this order.
    """

    def __init__(
        self,
        loop: Loop,
        reader: Reader,
        exited: Callable[[Terminal, Exit], None],
        closed: Callable[[Terminal, int], None],
    ) -> None:
        self.loop = loop
        self.reader = reader
        self.exited = exited
        self.closed = closed
        self.by_name: dict[str, Terminal] = {}
        self.by_pid: dict[int, Terminal] = {}
        """Those whose child is not reaped."""
        self.written: dict[Terminal, None] = {}
        """Those that were written to, whose consumer may have armed since."""
        self.stalled: dict[Terminal, None] = {}

    def must_wake(self) -> bool:
        """Disarm consumers that wait for what was written; return whether there was one.

        A consumer that arms in this very moment is seen by the next call.
        """
        wake = False
        for terminal in tuple(self.written):
            ring = terminal.ring
            if ring is not None and ring.header[ARMED]:
                ring.header[ARMED] = 0
                wake = True
            elif terminal.checked:
                del self.written[terminal]
            terminal.checked = True
        return wake

    def look_for_room(self) -> None:
        """Go on reading where there is a good deal of room again."""
        for terminal in tuple(self.stalled):
            terminal.resume(_RESUME_FRACTION)

    def stall(self, terminal: Terminal) -> None:
        """Look for room for this terminal until there is."""
        if not self.stalled:
            self.loop.call_later(_STALLED_RETRY_S, self._look_for_any_room)
        self.stalled[terminal] = None

    def _look_for_any_room(self) -> None:
        for terminal in tuple(self.stalled):
            terminal.resume(0)
        if self.stalled:
            self.loop.call_later(_STALLED_RETRY_S, self._look_for_any_room)


class Child:
    """The first process of a terminal."""

    __slots__ = ("pid", "pidfd", "started")

    def __init__(self, pid: int, started: float, pidfd: int | None) -> None:
        self.pid = pid
        self.started = started
        self.pidfd = pidfd


class Terminal:
    """One terminal, which owns the descriptors. `ring` is None once it is unmapped."""

    __slots__ = (
        "_all",
        "_drain_left",
        "_forgotten",
        "_polled",
        "_taken",
        "checked",
        "child",
        "closed_end",
        "ended",
        "exit",
        "master",
        "name",
        "ring",
        "ring_fd",
    )

    def __init__(
        self,
        terminals: Terminals,
        name: str,
        child: Child,
        master: int | None,
        ring: tuple[int, RingFile],
    ) -> None:
        self._all = terminals
        self.name = name
        self.child = child
        self.master = master
        self.ring_fd = ring[0]
        self.ring: RingFile | None = ring[1]
        self.exit: Exit | None = None
        self.closed_end: int | None = None
        self.ended = False
        self.checked = False
        self._forgotten = False
        self._polled = False
        self._drain_left = DRAIN_BYTES
        self._taken: tuple[int, int, resource.struct_rusage] | None = None
        terminals.by_name[name] = self
        terminals.by_pid[child.pid] = self
        if master is not None:
            os.set_blocking(master, False)
            self._poll()
        if child.pidfd is not None:
            terminals.loop.add_reader(child.pidfd, self.child_ended)

    def descriptors(self) -> list[int] | None:
        """Return what a worker gets: the ring and, while it is open, the master; None if forgotten.

        In this order, since a master may be missing.
        """
        if self._forgotten:
            return None
        return [self.ring_fd] if self.master is None else [self.ring_fd, self.master]

    def look_at_child(self) -> None:
        """Look whether the child has ended: at SIGCHLD, where there is no pidfd."""
        if self.ended or self.child.pidfd is not None:
            return
        pid = self.child.pid
        try:
            if hasattr(os, "waitid"):
                over = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
            else:
                # The status comes with the knowledge; the report waits for the drain all the same.
                self._taken = os.wait4(pid, os.WNOHANG)
                over = self._taken[0] != 0
        except ChildProcessError:
            over = True
        if over:
            self.child_ended()

    def child_ended(self) -> None:
        """Drain the PTY, then reap the child: it can be waited for. Can be repeated."""
        pidfd, self.child.pidfd = self.child.pidfd, None
        if pidfd is not None:
            self._all.loop.remove_reader(pidfd)
            os.close(pidfd)
        if not self.ended:
            self.ended = True
            self._drain()

    def restore_exit(self, report: Exit) -> None:
        """Take over what the ring's header says of the end of the child."""
        self.ended = True
        self.exit = report
        self._all.by_pid.pop(self.child.pid, None)
        self._close_if_over()

    def resume(self, fraction: float) -> None:
        """Go on reading if more than that fraction of the ring is room again."""
        if self.ring is None or self.master is None:
            self._all.stalled.pop(self, None)
        elif self.ring.room() > fraction * self.ring.capacity:
            self._all.stalled.pop(self, None)
            self.ring.header[STALLED] = 0
            if self.ended and self.exit is None:
                self._drain()
            else:
                self._poll()

    def close_master(self) -> None:
        """Close the keeper's descriptor of the PTY. Can be repeated."""
        if self.master is not None:
            self._stop_polling()
            self._all.stalled.pop(self, None)
            os.close(self.master)
            self.master = None
            if self.ended and self.exit is None:
                self._reap()
            else:
                self._close_if_over()

    def forget(self) -> None:
        """Release everything but the duty to reap the child."""
        self._forgotten = True
        self.close_master()
        self._unmap()
        os.close(self.ring_fd)
        self.ring_fd = -1
        self._all.by_name.pop(self.name, None)

    def _poll(self) -> None:
        if self.master is not None and not self._polled:
            self._polled = True
            self._all.loop.add_reader(self.master, self._readable)

    def _stop_polling(self) -> None:
        if self.master is not None and self._polled:
            self._polled = False
            self._all.loop.remove_reader(self.master)

    def _readable(self) -> None:
        alone = self._all.loop.batch_size == 1
        after = self._read(
            _TURN_BYTES if alone else _SHARED_TURN_BYTES,
            reading.GATHER if alone else reading.PRESENT,
        )
        if after == reading.HUNG_UP:
            self._hung_up()

    def _read(self, bound: int, how: int) -> int:
        """Read; stall if there is no room, and return what came after."""
        assert self.master is not None and self.ring is not None  # noqa: S101, PT018  polled
        head = self.ring.header[HEAD]
        after = self._all.reader.read(self.master, self.ring, bound, how)
        if self.ring.header[HEAD] != head:
            self.checked = False
            self._all.written[self] = None
        if after == reading.NO_ROOM:
            self.ring.header[STALLED] = 1
            # The worker that made room before it could see this does not say so.
            if self.ring.room() > 0:
                self.ring.header[STALLED] = 0
                return reading.BOUND
            self._stop_polling()
            self._all.stall(self)
        return after

    def _hung_up(self) -> None:
        if self.exit is not None:
            self.close_master()
            return
        # A hung-up PTY is ready all the time.
        self._stop_polling()
        if not self.ended:
            self._all.loop.call_later(IDLE_RETRY_S, self._look_again)

    def _look_again(self) -> None:
        if not self.ended:
            self._poll_again()

    def _drain(self) -> None:
        """Read what the child wrote, then reap it; later, if there is no room for that."""
        self._stop_polling()
        after = reading.BOUND
        while after == reading.BOUND and self.master is not None and self._drain_left > 0:
            assert self.ring is not None  # noqa: S101  it is unmapped after the master is closed
            head = self.ring.header[HEAD]
            after = self._read(self._drain_left, reading.PLAIN)
            self._drain_left -= self.ring.header[HEAD] - head
        if after != reading.NO_ROOM:
            self._reap()
            self._poll_again()

    def _reap(self) -> None:
        """Take the status of the child, which has ended, and report it."""
        try:
            if self._taken is None or self._taken[0] == 0:
                self._taken = os.wait4(self.child.pid, os.WNOHANG)
        except ChildProcessError:
            self._report(None, 0.0, 0)
            return
        reaped, status, usage = self._taken
        if reaped:
            cpu = usage.ru_utime + usage.ru_stime
            self._report(status, cpu, usage.ru_maxrss * _RSS_UNIT)
        else:
            # A pidfd is readable before a traced child's parent can have the status.
            self._all.loop.call_later(TRACED_RETRY_S, self._reap_again)

    def _reap_again(self) -> None:
        if self.exit is None:
            self._reap()
        self._poll_again()

    def _poll_again(self) -> None:
        """Read what other processes write; a PTY that has hung up says so by that."""
        if self not in self._all.stalled:
            self._poll()

    def _report(self, status: int | None, cpu: float, max_rss: int) -> None:
        self._all.by_pid.pop(self.child.pid, None)
        end = 0 if self.ring is None else self.ring.header[HEAD]
        self.exit = status, cpu, max_rss, time.clock_gettime(_CLOCK), end
        if self.ring is not None:
            header = self.ring.header
            header[EXIT_END] = end
            header[EXIT_CPU] = int(cpu * 1e6)
            header[EXIT_RSS] = max_rss
            header[EXIT_AT] = int(self.exit[3] * 1e6)
            header[EXITED] = EXITED_UNKNOWN if status is None else status + 1
        if not self._forgotten:
            self._all.exited(self, self.exit)
        self._close_if_over()

    def _close_if_over(self) -> None:
        if self.exit is not None and self.master is None and self.closed_end is None:
            end = self.exit[4]
            if self.ring is not None:
                end = self.ring.header[HEAD]
                self.ring.header[CLOSED] = end + 1
            self.closed_end = end
            if not self._forgotten:
                self._all.closed(self, end)
            self._unmap()

    def _unmap(self) -> None:
        ring, self.ring = self.ring, None
        if ring is not None:
            ring.close()
            self._all.written.pop(self, None)
