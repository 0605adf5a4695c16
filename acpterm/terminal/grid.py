"""The screens of a terminal: pyte's, with what it lacks and without what is wrong in it.

Imports pyte: only `emulator` imports this module.

Rules:

- The alternate screen begins blank; when it is left the main screen is as it was, and with
  mode 1049 the cursor is where it was.
- There is one saved cursor for each screen: what a program prints does not make the screen grow.
  Without one, what is restored is the cursor of a new screen.
"""

from __future__ import annotations

import copy
from typing import NamedTuple

from pyte import modes
from pyte.charsets import LAT1_MAP, VT100_MAP
from pyte.screens import Cursor, Margins

from acpterm.terminal.cells import Rows, blank_rows
from acpterm.terminal.drawing import Drawing
from acpterm.terminal.hyperlink import Room
from acpterm.terminal.style import BLANK, PLAIN, Cell, Pen, lead, pen_of, restyle
from acpterm.terminal.told import Told


class Saved(NamedTuple):
    """What DECSC saves."""

    x: int
    """As wide as the screen when the next character wraps."""
    y: int
    pen: Pen
    g0_charset: str
    g1_charset: str
    charset: int
    modes: frozenset[int]


NOTHING_SAVED = Saved(0, 0, pen_of(PLAIN), LAT1_MAP, VT100_MAP, 0, frozenset({modes.DECAWM}))


class Grid(Drawing):
    """The main and the alternate screen, and the cursor."""

    told: Told
    saved: Saved
    #: The main screen and its saved cursor, while the alternate one is shown.
    main: tuple[Rows, Saved] | None

    def __init__(self, columns: int, lines: int) -> None:
        self.told = Told()
        self._room = Room()
        super().__init__(columns, lines)

    # -- Resetting, saving, switching

    def reset(self) -> None:
        """Be as new (RIS)."""
        super().reset()
        self.saved = NOTHING_SAVED
        self.main = None
        self.told.reset()

    def soft_reset(self) -> None:
        """Reset modes, margins and pen, but neither the cells nor the cursor (DECSTR)."""
        self.mode = (self.mode - {modes.IRM, modes.DECOM}) | {modes.DECAWM, modes.DECTCEM}
        self.margins = None
        self.pen = pen_of(PLAIN)
        self._take_charsets(NOTHING_SAVED)
        self.saved = NOTHING_SAVED
        self.told.soften()

    def save_cursor(self) -> None:
        """Save the cursor, in place of what was saved before (DECSC)."""
        kept = frozenset(self.mode & {modes.DECOM, modes.DECAWM})
        x, y = self.cursor.x, self.cursor.y
        charsets = self.g0_charset, self.g1_charset, self.charset
        # As in VTE, a link is neither saved nor restored.
        pen = pen_of(lead(self.pen.style, ""))
        self.saved = Saved(x, y, pen, *charsets, kept)

    def restore_cursor(self) -> None:
        """Put the cursor where it was saved, or at home (DECRC)."""
        saved = self.saved
        self._take_charsets(saved)
        self.mode = (self.mode - {modes.DECOM, modes.DECAWM}) | saved.modes
        self.pen = pen_of(lead(saved.pen.style, self.pen.style.link))
        self.cursor.x = min(saved.x, self.columns)
        top, bottom = self._bounds()
        self.cursor.y = min(max(saved.y, top), bottom)

    def _take_charsets(self, saved: Saved) -> None:
        self.g0_charset, self.g1_charset = saved.g0_charset, saved.g1_charset
        self.charset = saved.charset

    def alternate(self, on: bool, *, with_cursor: bool) -> None:
        """Show the alternate screen, blank, or the main one again (XTerm 47, 1047, 1049)."""
        if on and self.main is None:
            if with_cursor:
                self.save_cursor()
            self.main = self.buffer, self.saved
            self.buffer, self.saved = blank_rows(), NOTHING_SAVED
            self.told.keys.switch(alternate=True)
        elif not on and self.main is not None:
            self.buffer, self.saved = self.main
            self.main = None
            self.told.keys.switch(alternate=False)
            if with_cursor:
                self.restore_cursor()

    def set_size(self, cols: int, rows: int) -> None:
        """Change the size; see `Screen.resize`."""
        if (cols, rows) == (self.columns, self.lines):
            return
        before = self.columns
        self.columns, self.lines = cols, rows
        self.margins = None
        self.tabstops = set(range(8, cols, 8))
        if self.main is not None:
            buffer, saved = self.main
            if saved is NOTHING_SAVED:
                under = copy.copy(self.cursor)
                self.main = self._clipped(buffer, under, before), saved
            else:
                under = Cursor(saved.x, saved.y)
                buffer = self._clipped(buffer, under, before)
                self.main = buffer, saved._replace(x=under.x, y=under.y)
        self.buffer = self._clipped(self.buffer, self.cursor, before)

    def _clipped(self, buffer: Rows, cursor: Cursor, before: int) -> Rows:
        up = max(0, cursor.y - self.lines + 1)
        cursor.y -= up
        cursor.x = min(cursor.x, self.columns - 1)
        clipped = blank_rows()
        for y, row in buffer.items():
            if 0 <= y - up < self.lines:
                clipped[y - up] = row
                if row.default is not BLANK:
                    # Only what there was is erased: new columns are not.
                    row.update({x: row.default for x in range(before) if x not in row})
                    row.default = BLANK
                if self.columns < before and not row[self.columns].data:
                    last = self.columns - 1
                    row[last] = Cell(" ", row[last].style)
                for x in [x for x in row if x >= self.columns]:
                    del row[x]
        return clipped

    # -- The pen

    def restyle(self, parameters: str) -> None:
        """Set the attributes of what is drawn next (SGR)."""
        self.pen = pen_of(restyle(self.pen.style, parameters))

    def lead(self, link: str) -> None:
        """Have what is drawn next lead somewhere, or nowhere (OSC 8; see `hyperlink`)."""
        if link and not self._room.take(link, self._links_held):
            link = ""
        self.pen = pen_of(lead(self.pen.style, link))

    def _links_held(self) -> int:
        shown = [self.buffer, *([self.main[0]] if self.main else [])]
        cells = (cell for rows in shown for row in rows.values() for cell in row.values())
        return sum(map(len, {cell.style.link for cell in cells}))

    # -- Moving

    def set_tab_stop(self) -> None:
        """Set a tab stop at the cursor (HTS)."""
        self.tabstops.add(min(self.cursor.x, self.columns - 1))

    def tab_forward(self, count: int) -> None:
        """Go `count` tab stops to the right (CHT)."""
        stops = sorted(x for x in self.tabstops if x > self.cursor.x)
        count = max(1, count)
        self.cursor.x = stops[count - 1] if count <= len(stops) else self.columns - 1

    def tab_back(self, count: int) -> None:
        """Go `count` tab stops to the left (CBT)."""
        stops = sorted(x for x in self.tabstops if x < self.cursor.x)
        count = max(1, count)
        self.cursor.x = stops[-count] if count <= len(stops) else 0

    def cursor_up(self, count: int | None = None) -> None:
        """Go up, not across the top margin (CUU)."""
        top = self.margins.top if self.margins else 0
        stop = top if self.cursor.y >= top else 0
        self.cursor.y = max(stop, self.cursor.y - (count or 1))

    def cursor_down(self, count: int | None = None) -> None:
        """Go down, not across the bottom margin (CUD)."""
        last = self.lines - 1
        bottom = self.margins.bottom if self.margins else last
        stop = bottom if self.cursor.y <= bottom else last
        self.cursor.y = min(stop, self.cursor.y + (count or 1))

    def cursor_position(self, line: int | None = None, column: int | None = None) -> None:
        """Go to a line and a column, from 1; in origin mode, within the region (CUP)."""
        top, bottom = self._bounds()
        self.cursor.y = min(top + (line or 1) - 1, bottom)
        self.cursor.x = min((column or 1) - 1, self.columns - 1)

    def cursor_to_line(self, line: int | None = None) -> None:
        """Go to a line in the same column (VPA)."""
        self.cursor_position(line, self.cursor.x + 1)

    def _bounds(self) -> Margins:
        """Where the cursor may be put."""
        whole = Margins(0, self.lines - 1)
        return self.margins or whole if modes.DECOM in self.mode else whole

    def set_region(self, top: int, bottom: int) -> None:
        """Set the first and last line of the scrolling region, from 1 (DECSTBM)."""
        top, bottom = max(1, top), min(bottom or self.lines, self.lines)
        if top < bottom:
            whole = (top, bottom) == (1, self.lines)
            self.margins = None if whole else Margins(top - 1, bottom - 1)
            self.cursor_position()
