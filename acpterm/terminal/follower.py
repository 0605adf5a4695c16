"""Keeps the screen of a full-screen program up to date while nobody asks.

What such a program paints it does not paint again, so the ring would at last have dropped what is
still to be seen. States:

    plain ──a sign (`fullscreen`)──▶ followed ──no sign for `REPLAY` bytes, main screen──▶ plain

- *plain*: costs a look at what comes in; pyte is not even imported.
- *followed*: once `BEHIND` bytes are new, or a quarter of a smaller ring, they are drawn, in small
  steps between which others run. Not in a flood: while more than `RATE` bytes come a second, faster
  than they can be drawn beside all else, nothing is, and nothing that the output put off is looked
  at; what the ring drops then is skipped (see `screenview`).

The task that draws is in the terminal's nursery: it is started at the first sign, and waits where
there is nothing to do until it is cancelled.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import trio

from acpterm.terminal.fullscreen import FullScreen
from acpterm.terminal.screenview import REPLAY, ScreenView, Source

if TYPE_CHECKING:
    from acpterm.terminal.output import Output

BEHIND: Final = 64 * 1024
RATE: Final = 512 * 1024
# Seconds in which the rate is measured.
_MEASURED: Final = 0.1


class Follower:
    """The screen of one terminal, and what keeps it up to date."""

    def __init__(self, source: Source, output: Output) -> None:
        self._source = source
        self._output = output
        self._view: ScreenView | None = None
        self._signs = FullScreen()
        self._behind = min(BEHIND, output.ring.capacity // 4)
        # Where the last sign was; None before the first.
        self._sign: int | None = None
        self._news = trio.lowlevel.ParkingLot()
        self._waits = False

    @property
    def view(self) -> ScreenView:
        """The screen."""
        if self._view is None:
            self._view = ScreenView(self._source)
            self._output.when_losing = self._view.losing
        return self._view

    def sees(self, data: bytearray, size: int) -> bool:
        """Look at what has come, the first `size` bytes of `data`; whether to start `run` now."""
        first = False
        if size and self._signs.seen(data, size):
            first = self._sign is None
            self._sign = self._output.end
            self.view.hold(self._sign)
        if self._waits and self._is_due():
            self._waits = False
            self._news.unpark_all()
        return first

    async def run(self) -> None:
        """Draw what comes, until cancelled."""
        while True:
            if not self._is_due():
                self._waits = True
                await self._news.park()
            elif await self._is_calm():
                # While its window is too large it draws on a smaller one: no error.
                await self.view.follow()

    def _is_due(self) -> bool:
        end, view, sign = self._output.end, self.view, self._sign or 0
        return end - view.position > self._behind and (end - sign <= REPLAY or not view.is_plain)

    async def _is_calm(self) -> bool:
        before = self._output.end
        await trio.sleep(_MEASURED)
        return self._output.end - before <= RATE * _MEASURED
