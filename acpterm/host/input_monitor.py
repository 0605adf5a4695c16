"""Which terminals wait for somebody to type: a prompt is not a slow program.

It is looked at when it is asked for, and in terminals that have been quiet for `QUIET` seconds
alone: what prints does not wait. While somebody listens to events all that run are looked at every
`ROUND` seconds, and what has changed is told.
"""

import time
from collections.abc import Callable
from typing import Final

import trio

from acpterm.host.registry import TerminalEntry, TerminalRegistry

QUIET_S: Final = 0.1
PERIOD_S: Final = 0.5
# Terminals looked at between two checkpoints.
_BATCH: Final = 16


class InputMonitor:
    """Looks at the terminals of a roster. `told` is called with what has changed."""

    def __init__(
        self, registry: TerminalRegistry, told: Callable[[str, TerminalEntry, str | None], None]
    ) -> None:
        self._roster = registry
        self._on_change = told
        # Who is told looks once more: that is not told in the middle of it, but the next time.
        self._publishing: TerminalEntry | None = None

    def check(self, entry: TerminalEntry) -> bool | None:
        """Whether a terminal waits for input; None where nobody can know. Takes some 100 µs."""
        terminal = entry.terminal
        if terminal.exit is not None:
            waits: bool | None = False
        elif time.monotonic() - (terminal.timeline.last or 0) < QUIET_S:
            waits = False
        else:
            waits = terminal.waits_for_input()
        if waits != entry.waiting and self._publishing is not entry:
            before, entry.waiting = entry.waiting, waits
            self._publishing = entry
            try:
                if waits:
                    self._on_change("waiting", entry, None)
                elif before and terminal.exit is None:
                    self._on_change("resumed", entry, None)
            finally:
                self._publishing = None
        return waits

    async def run(self, is_needed: Callable[[], bool]) -> None:
        """Look at all that run, again and again while they are `heard` of, until cancelled."""
        while True:
            await trio.sleep(PERIOD_S)
            if not is_needed():
                continue
            for number, entry in enumerate(self._roster):
                if entry.terminal.exit is None:
                    self.check(entry)
                if number % _BATCH == _BATCH - 1:
                    await trio.lowlevel.checkpoint()
