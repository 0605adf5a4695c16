"""The cells of a screen, as they are kept and erased. Imports pyte.

Rules:

- A wide character takes two cells, the second empty; when one half goes, the other is blank.
- What is erased has the background colour of the pen, as in xterm. A row that was never written to
  is not there; one erased as a whole has no cells, but a default.
- To erase takes no longer than the screen has rows, or a row has columns.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TypeAlias

import pyte
from pyte.screens import StaticDefaultDict

from acpterm.terminal.style import BLANK, PLAIN, Cell, Pen, pen_of

Row: TypeAlias = StaticDefaultDict[int, Cell]
Rows: TypeAlias = dict[int, Row]


def blank_rows() -> Rows:
    """Give the rows of a screen that nothing was written to."""
    return defaultdict(lambda: StaticDefaultDict(BLANK))


class Cells(pyte.Screen):
    """One screen's cells, and the pen that writes on them."""

    # pyte's own cells are of another type, which nothing here makes.
    buffer: Rows  # type: ignore[assignment]
    pen: Pen
    #: The last character drawn.
    last: str
    #: Whether there may be wide characters: without, nobody has to look for halves.
    has_wide: bool

    def reset(self) -> None:
        """Be as new (RIS)."""
        super().reset()
        self.buffer = blank_rows()
        self.pen = pen_of(PLAIN)
        self.last = ""
        self.has_wide = False

    def rows_shown(self) -> list[str]:
        """Return the text of each row, as wide as its last cell written to."""
        return ["".join([cell.data for cell in self.cells_of(y)]) for y in range(self.lines)]

    def cells_of(self, y: int, buffer: Rows | None = None) -> list[Cell]:
        """Return the cells of a row, as many as it has up to the last one written to.

        `buffer`: the rows of a screen that is not the one shown.
        """
        row = (self.buffer if buffer is None else buffer).get(y)
        if row is None:
            return []
        full = row.default is not BLANK
        end = self.columns if full else min(self.columns, max(row, default=-1) + 1)
        return [row[x] for x in range(end)]

    def split_halves(self, row: Row, start: int, end: int) -> None:
        """Blank the halves that wide characters leave when the cells in between go."""
        if start < self.columns and start and not row[start].data:
            row[start - 1] = Cell(" ", row[start - 1].style)
        if end < self.columns and not row[end].data:
            row[end] = Cell(" ", row[end].style)

    def insert_characters(self, count: int | None = None) -> None:
        """Insert `count` blanks at the cursor; the rest of the row goes right (ICH)."""
        row, x, columns = self.buffer[self.cursor.y], self.cursor.x, self.columns
        if x >= columns:
            return
        count = min(count or 1, columns - x)
        if self.has_wide:
            self.split_halves(row, x, x)
            self.split_halves(row, columns - count, columns - count)
        moved = [row[at] for at in range(x, columns - count)]
        row.update(zip(range(x + count, columns), moved, strict=True))
        row.update(dict.fromkeys(range(x, x + count), self.pen.blank))

    def delete_characters(self, count: int | None = None) -> None:
        """Delete `count` characters at the cursor; the rest of the row comes left (DCH)."""
        row, x, columns = self.buffer[self.cursor.y], self.cursor.x, self.columns
        if x >= columns:
            return
        count = min(count or 1, columns - x)
        if self.has_wide:
            self.split_halves(row, x, x + count)
        moved = [row[at] for at in range(x + count, columns)]
        row.update(zip(range(x, columns - count), moved, strict=True))
        self._erase(row, columns - count, columns)

    def erase_characters(self, count: int | None = None) -> None:
        """Erase `count` characters from the cursor on (ECH)."""
        x = self.cursor.x
        self._erase(self.buffer[self.cursor.y], x, min(x + (count or 1), self.columns))

    def erase_in_line(self, how: int = 0, _private: bool = False) -> None:
        """Erase from the cursor on, up to it, or the whole line (EL 0 to 2)."""
        x, y = self.cursor.x, self.cursor.y
        if how == 2 or (how == 0 and x == 0):
            self.erase_row(y)
        elif how == 0:
            self._erase(self.buffer[y], x, self.columns)
        elif how == 1:
            self._erase(self.buffer[y], 0, min(x + 1, self.columns))

    def _erase(self, row: Row, start: int, end: int) -> None:
        if start >= end:
            return
        if self.has_wide:
            self.split_halves(row, start, end)
        blank = self.pen.blank
        if end == self.columns and blank is row.default:
            for x in [x for x in row if x >= start]:
                del row[x]
        else:
            row.update(dict.fromkeys(range(start, end), blank))

    def erase_row(self, y: int) -> None:
        """Erase a whole row."""
        if (blank := self.pen.blank) is BLANK:
            self.buffer.pop(y, None)
        else:
            self.buffer[y] = StaticDefaultDict(blank)

    def erase_in_display(self, how: int = 0, *_args: object, **_kwargs: object) -> None:
        """Erase from the cursor on, up to it, or all (ED 0 to 2); 3 is for what scrolled off."""
        y = self.cursor.y
        rows = {0: range(y + 1, self.lines), 1: range(y), 2: range(self.lines)}.get(how)
        if rows is None:
            return
        if self.pen.blank is not BLANK:
            for row in rows:
                self.erase_row(row)
        elif len(rows) == self.lines:
            self.buffer.clear()
        else:
            for row in [row for row in self.buffer if row in rows]:
                del self.buffer[row]
        if how < 2:
            self.erase_in_line(how)
