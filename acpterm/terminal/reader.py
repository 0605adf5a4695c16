"""What reads a terminal's PTY: from the master into the ring, the text and the timeline.

It reads as fast as `floods` allows, whoever looks on or not, but for those who `hold` it: they are
to miss nothing, so the program waits on its full PTY while one of them has fallen behind by a
quarter of the ring. That is for the person's own terminal in a pipe, and for nobody an agent knows.

The task is one of the terminal's. It ends when the child can be reaped and the PTY is closed, and
closes the master. A PTY that is closed before that is looked at every `REOPENED` seconds, since the
program may open `/dev/tty` again.
"""

import math
import time
from collections.abc import Callable
from typing import Final

import trio

from acpterm.pty.master import After, How, Master
from acpterm.terminal.floods import CALM, FLOOD, TURN, TURN_ALONE, Floods
from acpterm.terminal.output import Output
from acpterm.terminal.timeline import Timeline
from acpterm.terminal.vt.emulator import Emulator

DRAIN: Final = 256 * 1024
REOPENED: Final = 0.05
# Seconds without output that end a flood.
SETTLED: Final = 0.02

# One for all terminals: it is only used between two checkpoints.
_memory = bytearray(TURN_ALONE)
_buffer = memoryview(_memory)


class Reader:
    """Reads the PTY of the terminal `name`.

    `told` is called when something has come.
    """

    def __init__(
        self,
        name: str,
        master: Master,
        output: Output,
        timeline: Timeline,
        emulator: Emulator,
        *,
        told: Callable[[], None],
    ) -> None:
        self._name = name
        self._master = master
        self._output = output
        self._timeline = timeline
        self._emulator = emulator
        self._told = told
        # Set when the child can be reaped: there is no more to come than is in the kernel.
        self._reapable: Final = trio.Event()
        # Up to where those have read who are not to miss anything, by whoever they are.
        self._holding: dict[object, int] = {}
        self._let_go = trio.lowlevel.ParkingLot()

    def hold(self, who: object, position: int) -> None:
        """Have `who`, who has read up to `position`, miss nothing from there on."""
        self._holding[who] = position
        self._let_go.unpark_all()

    def let_go(self, who: object) -> None:
        """Wait no longer for `who`. Can be repeated."""
        self._holding.pop(who, None)
        self._let_go.unpark_all()

    @property
    def ended(self) -> bool:
        """Whether the child has."""
        return self._reapable.is_set()

    def end(self) -> None:
        """Learn that the child can be reaped; read what it had written, which is in the kernel."""
        self._reapable.set()
        self._let_go.unpark_all()
        left = DRAIN
        while left > 0 and not self._master.closed:
            taken, after = self._master.read(_buffer[:TURN])
            self._take(taken, later=False)
            left -= taken
            if after is not After.FULL:
                if after is After.CLOSED:
                    self._output.finish()
                return

    async def run(self, floods: Floods) -> None:
        """Read until the end."""
        master = self._master
        how, more, flooded = How.PLAIN, False, -math.inf
        while True:
            await self._wait_for_room()
            if not more:
                await self._wait_readable()
            how, size = floods.turn(self._name, flooded)
            if self._reapable.is_set():
                # There is no more to come, and only such a read tells of the end.
                how, size = How.PLAIN, TURN
            taken, after = master.read(_buffer[: self._at_most(size)], how)
            if taken >= FLOOD:
                flooded = trio.current_time()
                floods.note(self._name)
            later = how is How.GATHER and trio.current_time() - flooded < CALM
            self._take(taken, later=later)
            if not later:
                self._output.settle()
            by_the_clock = how is How.WAITING
            more = by_the_clock or after is After.FULL
            if by_the_clock:
                await floods.tick()
            elif more:
                await trio.lowlevel.checkpoint()
            elif after is After.CLOSED:
                self._output.settle()
                with trio.move_on_after(REOPENED):
                    await self._reapable.wait()
                if self._reapable.is_set():
                    # It was drained then.
                    master.close()
                    return

    async def _wait_for_room(self) -> None:
        """Wait for those who hold it; no longer than there is somebody to be read."""
        while self._holding and not self._reapable.is_set():
            behind = self._timeline.end - min(self._holding.values())
            if behind <= self._output.capacity // 4:
                return
            await self._let_go.park()

    def _at_most(self, size: int) -> int:
        return min(size, max(1, self._output.capacity // 4)) if self._holding else size

    async def _wait_readable(self) -> None:
        """Wait for something to read, or the end; if that takes long, take in what was put off."""
        if self._output.is_late:
            with trio.move_on_after(SETTLED):
                await self._master.wait_readable()
                return
            self._output.settle()
        await self._master.wait_readable()

    def _take(self, taken: int, *, later: bool) -> None:
        if taken:
            self._timeline.note(taken, time.monotonic())
            self._output.put(_buffer[:taken], later=later)
            self._emulator.feed(_buffer[:taken])
            self._told()
