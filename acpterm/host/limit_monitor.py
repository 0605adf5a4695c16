"""Kills terminals that have had no output and no input for as long as their limit `idle` allows.

One task has one deadline per terminal, and sleeps until the earliest. At a deadline it reads when
the terminal was last active, and kills it or sets a new deadline. So no work is done when a
terminal is active, and still each kill is as punctual as the event loop.

*Activity* is output of the program, and input typed by the user or by the agent. The replies of the
emulator to the program's queries are no activity, and neither is an attached window as such; a
window that resizes the terminal may cause output. Output that was not consumed yet counts as
activity at the time of the check.

The time of the last activity is not stored. After a take-over, each terminal counts as active at
that moment, so it may be idle longer than its limit, but is never killed too early. The limit
`wall` is not watched here: `Terminal` kills its program at the end of its lifetime, and that time
is stored (`TerminalRecord.lifetime_end`).
"""

import heapq
import itertools
import math
import time
import weakref
from collections.abc import Callable
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry
from acpterm.terminal.status import EndedBy

# A deadline counts as passed this much before its time: because of rounding, a sleep until the
# deadline may end just before it.
_TOLERANCE_S: Final = 1e-3


class LimitMonitor:
    """Kills each watched terminal that is idle for too long; `clock` is that of `last_activity`."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock: Final = clock
        self._numbers: Final = itertools.count()
        # The deadline of each terminal, and a number. The heap compares the numbers if deadlines
        # are equal, since it cannot compare terminals.
        self._deadlines: list[tuple[float, int, IdleTerminal]] = []
        self._changed: Final = trio.lowlevel.ParkingLot()

    def watch(self, terminal: "IdleTerminal") -> None:
        self._push(terminal.last_activity() + terminal.idle_s, terminal)
        if self._deadlines[0][2] is terminal:
            self._changed.unpark_all()

    async def run(self) -> None:
        while True:
            # Compute a duration, because this clock need not be trio's, which tests replace.
            left = self._check() - self._clock()
            with trio.move_on_after(max(0.0, left)):
                await self._changed.park()

    def _check(self) -> float:
        """Handle all deadlines that have passed; return the next one, infinity if there is none."""
        while self._deadlines:
            deadline, _, terminal = self._deadlines[0]
            now = self._clock() + _TOLERANCE_S
            if terminal.is_over:
                heapq.heappop(self._deadlines)
            elif deadline > now:
                return deadline
            else:
                heapq.heappop(self._deadlines)
                actual = terminal.last_activity() + terminal.idle_s
                if actual > now:
                    self._push(actual, terminal)
                else:
                    terminal.expire()
        return math.inf

    def _push(self, deadline: float, terminal: "IdleTerminal") -> None:
        heapq.heappush(self._deadlines, (deadline, next(self._numbers), terminal))


class IdleTerminal:
    """A terminal that may be idle for `idle_s` seconds."""

    def __init__(self, entry: TerminalEntry, registry: TerminalRegistry, idle_s: float) -> None:
        self.idle_s: Final = idle_s
        # A weak reference, because the monitor refers to this object until the next deadline, which
        # may be long after the terminal was forgotten.
        self._entry: Final = weakref.ref(entry)
        self._registry: Final = registry
        # The start of the program, or of this worker, counts as activity.
        self._last_input = time.monotonic()
        entry.terminal.keyboard.listeners.append(self._record_input)

    @property
    def is_over(self) -> bool:
        entry = self._entry()
        return (
            entry is None
            or entry.is_users
            or entry.background_end is not None
            or entry.released_at is not None
            or entry.record.killed_by is not None
        )

    def last_activity(self) -> float:
        """Return the time of the last output or input, or of the creation."""
        entry = self._entry()
        if entry is None:
            return self._last_input
        if entry.terminal.is_queued or not entry.terminal.catch_up():
            return time.monotonic()
        return max(self._last_input, entry.terminal.timeline.last or 0.0)

    def expire(self) -> None:
        if (entry := self._entry()) is not None:
            self._registry.kill(entry, EndedBy.IDLE)

    def _record_input(self, data: bytes, echoed: bool) -> None:
        del data, echoed
        self._last_input = time.monotonic()
