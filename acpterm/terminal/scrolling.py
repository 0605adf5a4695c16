"""The rows of a screen: going from one to the next, scrolling, inserting and deleting them.

Imports pyte. The rule: rows move within the margins, and as they are; a row that comes in is
erased, so it has the background colour of the pen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyte.screens import Margins

from acpterm.terminal.cells import Cells
from acpterm.terminal.style import BLANK

if TYPE_CHECKING:
    from collections.abc import Callable


class Scrolling(Cells):
    """One screen's cells, whose rows can move."""

    def index(self) -> None:
        """Go down a line; at the bottom margin the region scrolls up (IND)."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y != bottom:
            self.cursor_down()
            return
        buffer = self.buffer
        buffer.pop(top, None)
        for y in range(top, bottom):
            if (row := buffer.pop(y + 1, None)) or (row is not None and row.default is not BLANK):
                buffer[y] = row
        if self.pen.blank is not BLANK:
            self.erase_row(bottom)

    def reverse_index(self) -> None:
        """Go up a line; at the top margin the region scrolls down (RI)."""
        if self.cursor.y == (self.margins.top if self.margins else 0):
            self.scroll_down(1)
        else:
            self.cursor_up()

    def scroll_up(self, count: int) -> None:
        """Scroll the region up by `count` lines (SU)."""
        self._at_margin(Scrolling.delete_lines, count)

    def scroll_down(self, count: int) -> None:
        """Scroll the region down by `count` lines (SD)."""
        self._at_margin(Scrolling.insert_lines, count)

    def _at_margin(self, what: Callable[[Scrolling, int], None], count: int) -> None:
        x, y = self.cursor.x, self.cursor.y
        self.cursor.y = self.margins.top if self.margins else 0
        what(self, count)
        self.cursor.x, self.cursor.y = x, y

    def insert_lines(self, count: int | None = None) -> None:
        """Insert `count` lines at the cursor; those from there on go down (IL)."""
        self._shift(count or 1, down=True)

    def delete_lines(self, count: int | None = None) -> None:
        """Delete `count` lines at the cursor; those below come up (DL)."""
        self._shift(count or 1, down=False)

    def _shift(self, count: int, *, down: bool) -> None:
        top, bottom = self.margins or Margins(0, self.lines - 1)
        first = self.cursor.y
        if not top <= first <= bottom:
            return
        span = range(bottom, first - 1, -1) if down else range(first, bottom + 1)
        for y in span:
            source = y - count if down else y + count
            if first <= source <= bottom:
                row = self.buffer.pop(source, None)
                if row is None:
                    self.buffer.pop(y, None)
                else:
                    self.buffer[y] = row
            else:
                self.erase_row(y)
        self.carriage_return()
