"""Finds what exited programs have left running, and when that ends.

A background is looked up by requests (`check`), and by one task while there is any. The task checks
every `PERIOD_S` seconds whether anything runs on. It describes the processes more and more rarely
while they stay the same, since that reads all processes of the system.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

import trio

from acpterm.host.entry import TerminalEntry
from acpterm.host.registry import TerminalRegistry
from acpterm.pty.background import NO_BACKGROUND, Background
from acpterm.pty.processes import now as boot_time
from acpterm.pty.tracking.tree import collect

PERIOD_S: Final = 0.5
# The longest time between two descriptions of processes that stay the same.
_DESCRIPTION_PERIOD_MAX_S: Final = 5.0
# A request waits at most so long for a check. An exit is never reported later than that.
_CHECK_TIMEOUT_S: Final = 1.0
# What ends so soon after the program is no background, such as `tee` in `make > >(tee log)`.
_SETTLING_S: Final = 0.05
_POLL_S: Final = 0.005


class _Watched:
    def __init__(self, entry: TerminalEntry) -> None:
        self.entry: Final = entry
        self.pause = 0.0
        self.next = 0.0


class BackgroundMonitor:
    """Records in `registry` what the exited programs of its terminals have left running."""

    def __init__(self, registry: TerminalRegistry) -> None:
        self._registry: Final = registry
        self._watched: Final[dict[str, _Watched]] = {}
        self._added: Final = trio.lowlevel.ParkingLot()

    def watch(self, entry: TerminalEntry) -> None:
        self._watched[entry.id] = _Watched(entry)
        self._added.unpark_all()

    async def check(self, entry: TerminalEntry) -> None:
        """Record what an exited program has left running now; look for at most a second."""
        # Most leave nothing, which is found without waiting.
        if entry.may_have_background and not self._found_nothing(entry):
            await self._settle(entry)

    async def _settle(self, entry: TerminalEntry) -> None:
        settled_at = entry.over_since + _SETTLING_S
        with trio.move_on_after(_CHECK_TIMEOUT_S):
            while boot_time() < settled_at or not await self._describe(entry):
                await trio.sleep(_POLL_S)
                if self._found_nothing(entry):
                    if entry.background_end is not None:
                        # What it has written last may still be in the PTY.
                        await entry.terminal.wait_output_closed()
                    return

    async def of_running(self, entry: TerminalEntry) -> Background:
        """Return what runs beside the foreground of a terminal whose program has not exited."""
        found: Background | None = NO_BACKGROUND
        with suppress(OSError):  # no descriptor is free just now
            found = await entry.terminal.background()
            if found != NO_BACKGROUND:
                await trio.sleep(_SETTLING_S)
                found = await entry.terminal.background()
        return found or NO_BACKGROUND

    async def check_all(self) -> None:
        await self._for_each(lambda watched: self._settle(watched.entry))

    async def run(self) -> None:
        while True:
            while not self._watched:
                await self._added.park()
            await trio.sleep(PERIOD_S)
            await self._for_each(self._describe_due)

    async def _for_each(self, describe: Callable[[_Watched], Awaitable[None]]) -> None:
        # In a function of its own, because a loop in `run` would hold the last terminal and its
        # ring until the next round.
        all_watched = list(self._watched.values())
        are_over = await collect(self._found_nothing(each.entry) for each in all_watched)
        # At once, so that they share one scan of the system's processes.
        async with trio.open_nursery() as nursery:
            for watched, is_over in zip(all_watched, are_over, strict=True):
                if not is_over:
                    nursery.start_soon(describe, watched)

    async def _describe_due(self, watched: _Watched) -> None:
        entry, before = watched.entry, watched.entry.background
        if trio.current_time() >= watched.next:
            await self._describe(entry)
            is_same = entry.background == before
            longer = min(2 * watched.pause, _DESCRIPTION_PERIOD_MAX_S)
            watched.pause = longer if is_same and longer else PERIOD_S
            watched.next = trio.current_time() + watched.pause

    def _found_nothing(self, entry: TerminalEntry) -> bool:
        """Check whether nothing runs on, and record that; return whether no more has to be done."""
        with suppress(OSError):  # no descriptor is free just now: the next check tries again
            if entry.may_have_background and entry.terminal.has_background() is False:
                self._registry.record_background(entry, NO_BACKGROUND)
        if entry.may_have_background and entry.released_at is None:
            return False
        self._watched.pop(entry.id, None)
        return True

    async def _describe(self, entry: TerminalEntry) -> bool:
        """Record what runs on; return False if that is only just ending."""
        try:
            found = await entry.terminal.background()
        except OSError:
            return True  # as above
        if found is not None:
            self._registry.record_background(entry, found)
        return found is not None
