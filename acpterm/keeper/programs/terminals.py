"""All terminals of a keeper, and what they wait for together."""

from __future__ import annotations

import os
import struct

from acpterm.keeper.ring import ARMED, EMULATOR, EMULATOR_KILLS, HEAD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from acpterm.keeper.process.loop import Loop
    from acpterm.keeper.programs.reading import Reader
    from acpterm.keeper.programs.reaping import Exit
    from acpterm.keeper.programs.terminal import Terminal

# Reading into a little room again and again costs more than to wait for more of it. What the worker
# does not announce, and what stays little, is found after a moment.
_RESUME_FRACTION = 0.25
_STALLED_RETRY_S = 0.05
# The memory of a ring's room is given back when nothing was written for so long.
_TRIM_IDLE_S = 1.0
# A word of a ring's header.
_WORD = struct.Struct("=Q")
_KILLS_MAX = 3


class Terminals:
    """All terminals by name, and by pid those whose child is not reaped.

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
        # Those that were written to, and how often it was looked whether their consumer waits.
        self._written: dict[Terminal, int] = {}
        self._stalled: dict[Terminal, None] = {}
        self._retrying = False
        # Those whose ring may have memory to give back, and what was written when they were seen.
        self._to_trim: dict[Terminal, int] = {}
        self._trimming = False

    def mark_written(self, terminal: Terminal) -> None:
        """Wake the consumer of this terminal, if it waits, at the end of the turn."""
        self._written[terminal] = 0

    def trim_when_idle(self, terminal: Terminal) -> None:
        """Give the memory of this terminal's room back once its program writes no more."""
        self._to_trim.setdefault(terminal, -1)
        self._trim_later()

    def _trim_later(self) -> None:
        if self._to_trim and not self._trimming:
            self._trimming = True
            self.loop.call_later(_TRIM_IDLE_S, self._trim)

    def _trim(self) -> None:
        self._trimming = False
        for terminal, seen in tuple(self._to_trim.items()):
            ring = terminal.ring
            if ring is not None and ring.header[HEAD] != seen:
                self._to_trim[terminal] = ring.header[HEAD]
                continue
            del self._to_trim[terminal]
            if ring is not None:
                ring.release_free_pages()
        self._trim_later()

    @property
    def needs_recheck(self) -> bool:
        """Whether a consumer may have begun to wait since it was last looked."""
        return bool(self._written)

    def disarm_waiting(self) -> bool:
        """Disarm consumers that wait for what was written; return whether there was one.

        A consumer that arms in this very moment is seen by the next call.
        """
        wake = False
        for terminal, looks in tuple(self._written.items()):
            ring = terminal.ring
            if ring is not None and ring.header[ARMED]:
                ring.header[ARMED] = 0
                wake = True
            if looks == 0 and ring is not None:
                self._written[terminal] = 1
            else:
                del self._written[terminal]
        return wake

    def clear_emulator_marks(self, *, was_killed: bool = False) -> None:
        """Note that the worker did not end by the output that its emulators were at.

        `was_killed`: it may have been, if an emulator took all memory. A mark is left where that
        is so again and again.
        """
        for terminal in self.by_name.values():
            # By the file: the ring of a closed terminal is not mapped any more.
            kills = _read_word(terminal.ring_fd, EMULATOR_KILLS)
            if was_killed and _read_word(terminal.ring_fd, EMULATOR):
                kills += 1
                _write_word(terminal.ring_fd, EMULATOR_KILLS, kills)
            if kills < _KILLS_MAX:
                _write_word(terminal.ring_fd, EMULATOR, 0)

    def stall(self, terminal: Terminal) -> None:
        """Look for room for this terminal until there is."""
        self._stalled[terminal] = None
        self._retry_later()

    def unstall(self, terminal: Terminal) -> None:
        """Undo `stall`. Can be repeated."""
        self._stalled.pop(terminal, None)

    def resume_stalled(self) -> None:
        """Go on reading where there is a good deal of room again."""
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
