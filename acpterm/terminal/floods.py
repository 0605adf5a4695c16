"""How the readers of floods take turns: programs that write more than anybody reads.

A terminal floods from a turn that had `FLOOD` bytes until `CALM` seconds after the last such turn.

- One flood alone is read as fast as can be (`How.GATHER`), and its text is put off.
- Several floods are read by the clock, all at the same ticks, so that the daemon wakes once for
  all: every `QUICK` seconds; or, while somebody has asked for something within `ASKED` seconds, a
  little every `SLOW`. Their programs wait meanwhile, on full PTYs, and leave the processors to who
  is asked. No such reader waits for its PTY to be readable: Linux tells that after the worker that
  moves the output has had its turn, which on a machine with more programs than processors takes
  milliseconds, and the whole daemon waits for it.
- What does not flood is read when there is something, and taken in at once.

One for all terminals of a daemon. It only remembers the last two terminals that flooded: there are
others, or there are not.
"""

import math
from typing import Final

import trio

from acpterm.pty.master import How

FLOOD: Final = 2 * 1024
CALM: Final = 0.1
QUICK: Final = 0.001
SLOW: Final = 0.01
ASKED: Final = 0.1
# Bytes taken between two checkpoints; by the only flood, some 3 ms of reading.
TURN: Final = 64 * 1024
TURN_ASKED: Final = 8 * 1024
TURN_ALONE: Final = 256 * 1024


class Floods:
    """Who floods, and whether anybody asks."""

    def __init__(self) -> None:
        self._who: str | None = None
        self._last = -math.inf
        self._last_of_others = -math.inf
        self._asked = -math.inf

    def asked(self) -> None:
        """Note that somebody has asked for something."""
        self._asked = trio.current_time()

    def note(self, who: str) -> None:
        """Note that the terminal of the id `who` had `FLOOD` bytes, or more, in one turn."""
        if who != self._who:
            self._who = who
            self._last_of_others = self._last
        self._last = trio.current_time()

    def turn(self, who: str, flooded: float) -> tuple[How, int]:
        """Say how `who` is to read now, and at most how many bytes.

        `flooded`: when its last turn of `FLOOD` bytes was, or -inf.
        """
        if not self.others(who):
            return How.GATHER, TURN_ALONE
        if trio.current_time() - flooded >= CALM:
            return How.PLAIN, TURN
        return How.WAITING, TURN_ASKED if self._is_asked() else TURN

    def others(self, who: str) -> bool:
        """Whether other terminals flood."""
        last = self._last_of_others if who == self._who else self._last
        return trio.current_time() - last < CALM

    async def tick(self) -> None:
        """Wait for the next tick."""
        pace = SLOW if self._is_asked() else QUICK
        # A little more, or what was just waited for would, when rounded, come once more.
        ticks = math.floor(trio.current_time() / pace + 0.001) + 1
        await trio.sleep_until(ticks * pace)

    def _is_asked(self) -> bool:
        return trio.current_time() - self._asked < ASKED
