"""Which terminals wait for somebody to type: a prompt is not a slow program.

It is looked at when it is asked for, and in terminals that have been quiet for `QUIET` seconds
alone: what prints does not wait. While somebody listens to events all that run are looked at every
`ROUND` seconds, and what has changed is told.
"""

import time
from collections.abc import Callable
from typing import Final

import trio

from acpterm.host.registry import Entry, Roster

QUIET: Final = 0.1
ROUND: Final = 0.5
# Terminals looked at between two checkpoints.
_STEP: Final = 16


class Attention:
    """Looks at the terminals of a roster. `told` is called with what has changed."""

    def __init__(self, roster: Roster, told: Callable[[str, Entry, str | None], None]) -> None:
        self._roster = roster
        self._told = told
        # Who is told looks once more: that is not told in the middle of it, but the next time.
        self._telling: Entry | None = None

    def look(self, entry: Entry) -> bool | None:
        """Whether a terminal waits for input; None where nobody can know. Takes some 100 µs."""
        terminal = entry.terminal
        if terminal.exit is not None:
            waits: bool | None = False
        elif time.monotonic() - (terminal.timeline.last or 0) < QUIET:
            waits = False
        else:
            waits = terminal.waits_for_input()
        if waits != entry.waiting and self._telling is not entry:
            before, entry.waiting = entry.waiting, waits
            self._telling = entry
            try:
                if waits:
                    self._told("waiting", entry, None)
                elif before and terminal.exit is None:
                    self._told("resumed", entry, None)
            finally:
                self._telling = None
        return waits

    async def run(self, heard: Callable[[], bool]) -> None:
        """Look at all that run, again and again while they are `heard` of, until cancelled."""
        while True:
            await trio.sleep(ROUND)
            if not heard():
                continue
            for number, entry in enumerate(self._roster):
                if entry.terminal.exit is None:
                    self.look(entry)
                if number % _STEP == _STEP - 1:
                    await trio.lowlevel.checkpoint()
