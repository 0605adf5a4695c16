"""All terminals of a keeper, and the timers that serve several terminals at once."""

from __future__ import annotations

import os
import struct

from acpterm.keeper.ring_file import ARMED, EMULATOR, EMULATOR_KILLS, HEAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs.leader import Leader
    from acpterm.keeper.programs.reading import Reader
    from acpterm.keeper.programs.reaping import Exit
    from acpterm.keeper.programs.terminal import HeldTerminal

# Reading resumes when a quarter of the ring is free: that costs less than reading again and again
# into a few free bytes. A timer finds smaller free space, and space that the worker has freed
# without a wake-up.
_RESUME_FRACTION = 0.25
_STALLED_RETRY_S = 0.05
# The memory of a ring's free space is released when nothing was written for this long.
_TRIM_IDLE_S = 1.0
# A word of a ring's header.
_WORD = struct.Struct("=Q")
_EMULATOR_KILLS_MAX = 3


class HeldTerminals:
    """All terminals of a keeper. `by_pid` has those whose child was not reaped yet."""

    def __init__(
        self,
        loop: Loop,
        reader: Reader,
        exited: Callable[[HeldTerminal, Exit], None],
        closed: Callable[[HeldTerminal, int], None],
    ) -> None:
        self.loop = loop
        self.reader = reader
        self.exited = exited
        self.closed = closed
        self.by_name: dict[str, HeldTerminal] = {}
        self.by_pid: dict[int, HeldTerminal] = {}
        self.leader_pids: set[int] = set()  # which must not be reaped with the orphans
        self._ended_leaders: set[int] = set()
        # Terminals that `HeldTerminal.close_if_unused` must check again when a process has ended.
        self.held: dict[HeldTerminal, None] = {}
        # Terminals that were written to, and how often `disarm_waiting` has checked them since.
        self._written: dict[HeldTerminal, int] = {}
        self._stalled: dict[HeldTerminal, None] = {}
        self._retrying = False
        # Terminals whose ring may have memory to release, and their `HEAD` at the last check.
        self._to_trim: dict[HeldTerminal, int] = {}
        self._trimming = False

    def end_leader(self, leader: Leader) -> None:
        leader.end()
        self._ended_leaders.add(leader.pid)
        self.reap_leaders()

    def reap_leaders(self) -> None:
        """Reap the leaders that have ended: each zombie costs the worker time."""
        for pid in tuple(self._ended_leaders):
            try:
                is_reaped = os.waitpid(pid, os.WNOHANG)[0] != 0
            except ChildProcessError:
                is_reaped = True
            if is_reaped:
                self._ended_leaders.discard(pid)
                self.leader_pids.discard(pid)

    def mark_written(self, terminal: HeldTerminal) -> None:
        """Make the next two calls of `disarm_waiting` check this terminal."""
        self._written[terminal] = 0

    def trim_when_idle(self, terminal: HeldTerminal) -> None:
        """Release the memory of free space in the ring after a second without output."""
        self._to_trim.setdefault(terminal, -1)
        self._trim_later()

    def _trim_later(self) -> None:
        if self._to_trim and not self._trimming:
            self._trimming = True
            self.loop.call_later(_TRIM_IDLE_S, self._trim)

    def _trim(self) -> None:
        self._trimming = False
        for terminal, last_head in tuple(self._to_trim.items()):
            ring = terminal.ring
            if ring is not None and ring.header[HEAD] != last_head:
                self._to_trim[terminal] = ring.header[HEAD]
                continue
            del self._to_trim[terminal]
            if ring is not None:
                ring.release_free_pages()
        self._trim_later()

    @property
    def needs_recheck(self) -> bool:
        """Whether `disarm_waiting` must be called again soon."""
        return bool(self._written)

    def disarm_waiting(self) -> bool:
        """Clear `ARMED` in rings with new output; return whether the worker must be woken."""
        # Each is checked twice: a consumer that has not seen the output may set ARMED just after
        # the first call.
        wake = False
        for terminal, checks in tuple(self._written.items()):
            ring = terminal.ring
            if ring is not None and ring.header[ARMED]:
                ring.header[ARMED] = 0
                wake = True
            if checks == 0 and ring is not None:
                self._written[terminal] = 1
            else:
                del self._written[terminal]
        return wake

    def clear_emulator_marks(self, *, was_killed: bool = False) -> None:
        """Clear `EMULATOR` in all rings, after the end of a worker that did not crash."""
        # The system sends SIGKILL if the emulator uses up all memory: so kills are counted, and
        # after `_EMULATOR_KILLS_MAX` the word stays.
        for terminal in self.by_name.values():
            # Access the file, since the ring of a closed terminal is not mapped.
            kills = _read_word(terminal.ring_fd, EMULATOR_KILLS)
            if was_killed and _read_word(terminal.ring_fd, EMULATOR):
                kills += 1
                _write_word(terminal.ring_fd, EMULATOR_KILLS, kills)
            if kills < _EMULATOR_KILLS_MAX:
                _write_word(terminal.ring_fd, EMULATOR, 0)

    def stall(self, terminal: HeldTerminal) -> None:
        """Check a terminal's full ring repeatedly; resume reading the PTY when space is free."""
        self._stalled[terminal] = None
        self._retry_later()

    def unstall(self, terminal: HeldTerminal) -> None:
        self._stalled.pop(terminal, None)

    def resume_stalled(self) -> None:
        for terminal in tuple(self._stalled):
            terminal.resume(_RESUME_FRACTION)

    def _retry_later(self) -> None:
        if self._stalled and not self._retrying:
            self._retrying = True
            self.loop.call_later(_STALLED_RETRY_S, self._retry_stalled)

    def _retry_stalled(self) -> None:
        self._retrying = False
        for terminal in tuple(self._stalled):
            terminal.resume(0)
        self._retry_later()


def _read_word(ring_fd: int, word: int) -> int:
    (value,) = _WORD.unpack(os.pread(ring_fd, _WORD.size, word * _WORD.size))
    return int(value)


def _write_word(ring_fd: int, word: int, value: int) -> None:
    os.pwrite(ring_fd, _WORD.pack(value), word * _WORD.size)
