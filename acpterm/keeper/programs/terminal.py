"""One terminal in the keeper: a program, its PTY, and the ring that its output goes into.

States of the child:

    running --child ends--> ended --PTY drained, child reaped--> exited
       a debugger traces the child --> it stays ended; reaping is retried every `TRACED_RETRY_S`

The child is the program's process. A child that has *ended* is a zombie, and its pid cannot be
reused. The PTY is read until it is empty (*drained*) before the child is reaped, so that the exit
is reported after everything that the child wrote. If other processes have the PTY open, at most
`DRAIN_BYTES` are drained. If the ring is full, draining waits for free space.

States of the PTY:

    polled <--> stalled (the ring is full)
    polled <--> idle (no process has the slave open: polled again after `IDLE_RETRY_S`)
    polled <--> held (the child has exited and the PTY has hung up, but a background process is
       left in the foreground group, which the kernel would hang up if the PTY or its leader ended;
       polled again after `HELD_RETRY_S`)
    any state --> shut (the worker closed the PTY; or the child has exited, the PTY has hung up, and
       its foreground group has ended)

When the PTY is shut, the leader of its session is ended (see `leader`). A terminal that is exited
and shut is *closed*: its ring is unmapped, but the ring's descriptor and the report of the exit are
kept for the next worker.
"""

from __future__ import annotations

import os

from acpterm.keeper.programs import reading
from acpterm.keeper.programs.reaping import write_exit
from acpterm.keeper.ring_file import CLOSED, HEAD, STALLED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acpterm.keeper.programs.leader import Leader
    from acpterm.keeper.programs.reaping import Child, Exit
    from acpterm.keeper.programs.terminals import HeldTerminals
    from acpterm.keeper.ring_file import RingFile

TRACED_RETRY_S = 0.02
IDLE_RETRY_S = 0.05
HELD_RETRY_S = 0.5
DRAIN_BYTES = 256 * 1024
_TURN_BYTES = 256 * 1024
_SHARED_TURN_BYTES = 64 * 1024
# The memory of the ring's free space is released only after at least this much output.
_TRIM_BYTES = 64 * 1024


class HeldTerminal:
    """One terminal in the keeper. Owns `master`, `leader` and `ring_fd`."""

    __slots__ = (
        "_drain_left",
        "_forgotten",
        "_polled",
        "_stalled",
        "_terminals",
        "_trimmed_at",
        "child",
        "closed_end",
        "ended",
        "exit",
        "leader",
        "master",
        "name",
        "ring",
        "ring_fd",
    )

    def __init__(
        self,
        terminals: HeldTerminals,
        name: str,
        child: Child,
        pty: tuple[int | None, Leader | None],
        ring: tuple[int, RingFile],
    ) -> None:
        self._terminals = terminals
        self.name = name
        self.child = child
        self.master, self.leader = pty
        self.ring_fd = ring[0]
        self.ring: RingFile | None = ring[1]
        # None until the child is reaped; `closed_end` until the terminal is closed.
        self.exit: Exit | None = None
        self.closed_end: int | None = None
        self.ended = False
        self._forgotten = False
        self._polled = False
        self._stalled = False
        self._drain_left = DRAIN_BYTES
        self._trimmed_at = 0
        terminals.by_name[name] = self
        terminals.by_pid[child.pid] = self
        if self.leader is not None:
            terminals.leader_pids.add(self.leader.pid)
        if self.master is not None:
            os.set_blocking(self.master, False)
            self._poll()
        child.watch(terminals.loop, self.child_ended)

    def descriptors(self) -> list[int] | None:
        """Return the ring's descriptor, and the master's if it is open, unless forgotten."""
        if self._forgotten:
            return None
        return [self.ring_fd] if self.master is None else [self.ring_fd, self.master]

    @property
    def session(self) -> int | None:
        """The pid of the session's leader; None if the child leads it, or did."""
        return None if self.leader is None else self.leader.pid

    def check_child(self) -> None:
        """Check whether a child without pidfd has ended. Must be called at each SIGCHLD."""
        if not self.ended and self.child.check_ended():
            self.child_ended()

    def child_ended(self) -> None:
        """Read the rest of the output, then reap the child, which has ended. Idempotent."""
        self.child.unwatch(self._terminals.loop)
        if not self.ended:
            self.ended = True
            self._drain()

    def restore_exit(self, report: Exit) -> None:
        """Set the exit of a child that an earlier keeper has reaped."""
        self.ended = True
        self.exit = report
        self._terminals.by_pid.pop(self.child.pid, None)
        self._close_if_finished()

    def resume(self, fraction: float) -> None:
        """Resume reading the PTY if more than `fraction` of the ring is free."""
        if self.ring is not None and reading.room(self.ring) > fraction * self.ring.capacity:
            self._unstall()
            if self.ended and self.exit is None:
                self._drain()
            else:
                self._poll()

    def close_master(self) -> None:
        """Close the keeper's descriptor of the PTY. Idempotent."""
        if self.master is not None:
            self._stop_polling()
            self._unstall()
            os.close(self.master)
            self.master = None
            self._terminals.held.pop(self, None)
            if self.leader is not None:
                self._terminals.end_leader(self.leader)
                self.leader = None
            if self.ended and self.exit is None:
                self._reap()
            else:
                self._close_if_finished()

    def forget(self) -> None:
        """Close everything and report nothing any more. The child is not killed, but reaped."""
        self._forgotten = True
        self.close_master()
        self._unmap()
        os.close(self.ring_fd)
        self.ring_fd = -1
        self._terminals.by_name.pop(self.name, None)

    def _poll(self) -> None:
        if self.master is not None and not self._polled and not self._stalled:
            self._polled = True
            self._terminals.loop.add_reader(self.master, self._readable)

    def _stop_polling(self) -> None:
        if self.master is not None and self._polled:
            self._polled = False
            self._terminals.loop.remove_reader(self.master)

    def _readable(self) -> None:
        alone = self._terminals.loop.batch_size == 1
        stopped = self._read(
            _TURN_BYTES if alone else _SHARED_TURN_BYTES,
            reading.GATHER if alone else reading.AVAILABLE,
        )
        if stopped == reading.HUNG_UP:
            self._hung_up()

    def _read(self, max_bytes: int, how: int) -> int:
        """Read into the ring; return why the read stopped, as `reading` has it."""
        assert self.master is not None and self.ring is not None  # noqa: S101, PT018  polled
        head = self.ring.header[HEAD]
        stopped = self._terminals.reader.read(self.master, self.ring, max_bytes, how)
        if self.ring.header[HEAD] != head:
            self._terminals.mark_written(self)
            if self.ring.header[HEAD] - self._trimmed_at > _TRIM_BYTES:
                self._trimmed_at = self.ring.header[HEAD]
                self._terminals.trim_when_idle(self)
        if stopped == reading.RING_FULL:
            self._stall()
            # A worker that freed space just before `STALLED` was set has sent no wake-up.
            if reading.room(self.ring) > 0:
                self._unstall()
                self._poll()
                return reading.LIMIT_REACHED
        return stopped

    def _stall(self) -> None:
        assert self.ring is not None  # noqa: S101  it was just written to
        self._stop_polling()
        self._stalled = True
        self.ring.header[STALLED] = 1
        self._terminals.stall(self)

    def _unstall(self) -> None:
        if self._stalled:
            self._stalled = False
            self._terminals.unstall(self)
            if self.ring is not None:
                self.ring.header[STALLED] = 0

    def _hung_up(self) -> None:
        if self.exit is not None:
            self.close_if_unused()
            return
        # A PTY that has hung up is always ready: polling it would spin.
        self._stop_polling()
        # A program of an earlier keeper may have no pidfd and causes no SIGCHLD.
        self.check_child()
        if not self.ended:
            self._terminals.loop.call_later(IDLE_RETRY_S, self._poll)

    def close_if_unused(self) -> None:
        """Close the PTY, which has hung up, unless its foreground group has a process left."""
        if self.master is None:
            return
        if self.leader is not None and _has_foreground(self.master):
            self._stop_polling()
            if self not in self._terminals.held:
                self._terminals.held[self] = None
                # A process may open /dev/tty; no signal tells when one of an earlier keeper ends.
                self._terminals.loop.call_later(HELD_RETRY_S, self._poll_held)
        else:
            self.close_master()

    def _poll_held(self) -> None:
        if self in self._terminals.held:
            del self._terminals.held[self]
            self._poll()

    def _drain(self) -> None:
        """Read what the child, which has ended, has left; then reap it."""
        # If the ring is full, `resume` continues when there is space.
        self._stop_polling()
        stopped = reading.LIMIT_REACHED
        while stopped == reading.LIMIT_REACHED and self.master is not None and self._drain_left > 0:
            assert self.ring is not None  # noqa: S101  it is unmapped after the master is closed
            head = self.ring.header[HEAD]
            stopped = self._read(self._drain_left, reading.PLAIN)
            self._drain_left -= self.ring.header[HEAD] - head
        if stopped == reading.HUNG_UP:
            # No process has the PTY open: report the end of the output right after the exit.
            self._reap()
            if self.exit is not None:
                self.close_if_unused()
        elif stopped != reading.RING_FULL:
            self._reap()

    def _reap(self) -> None:
        """Reap the child, report its exit, and resume reading: others may write to the PTY."""
        if self.exit is not None:
            return
        end = 0 if self.ring is None else self.ring.header[HEAD]
        self.exit = self.child.reap(end)
        if self.exit is None:
            self._terminals.loop.call_later(TRACED_RETRY_S, self._reap)
        else:
            self._terminals.by_pid.pop(self.child.pid, None)
            if self.ring is not None:
                write_exit(self.ring.header, self.exit)
            if not self._forgotten:
                self._terminals.exited(self, self.exit)
            self._close_if_finished()
        # The next read detects whether the PTY has hung up.
        self._poll()

    def _close_if_finished(self) -> None:
        if self.exit is not None and self.master is None and self.closed_end is None:
            end = self.exit[4]
            if self.ring is not None:
                end = self.ring.header[HEAD]
                self.ring.header[CLOSED] = end + 1
            self.closed_end = end
            if not self._forgotten:
                self._terminals.closed(self, end)
            self._unmap()

    def _unmap(self) -> None:
        ring, self.ring = self.ring, None
        if ring is not None:
            ring.close()


def _has_foreground(master: int) -> bool:
    try:
        group = os.tcgetpgrp(master)
        if group <= 0:  # killpg(0) would ask about this process's own group
            return False
        os.killpg(group, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
