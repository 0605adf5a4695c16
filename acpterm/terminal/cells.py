"""The cells of a screen: drawing and erasing; rows scroll in `scrolling`. Imports pyte.

Rules:

- A wide character takes two cells, the second empty; when one half goes, the other is blank.
- A character has at most MARKS_MAX combining marks.
- What is erased has the background colour of the pen, as in xterm. A row that was never written to
  is not there; one erased as a whole has no cells, but a default.
- No control function takes much longer than the screen has rows, or a row has columns: those that
  touch every cell (DECALN, ED) do so by the row, and REP stays within the width.
"""

from __future__ import annotations

import unicodedata
from collections import defaultdict
from typing import TypeAlias

import pyte
from pyte import modes
from pyte.charsets import LAT1_MAP
from pyte.screens import StaticDefaultDict
from wcwidth import wcwidth

from acpterm.terminal.style import BLANK, PLAIN, Cell, Pen, pen_of

#: More than any script needs.
MARKS_MAX = 8

Row: TypeAlias = StaticDefaultDict[int, Cell]
Rows: TypeAlias = dict[int, Row]


def blank_rows() -> Rows:
    """Give the rows of a screen that nothing was written to."""
    return defaultdict(lambda: StaticDefaultDict(BLANK))


class Cells(pyte.Screen):
    """One screen's cells, with the pen that writes on them."""

    # pyte's own cells are of another type, which nothing here makes.
    buffer: Rows  # type: ignore[assignment]
    pen: Pen
    #: The last character drawn.
    last: str
    #: Whether there may be wide characters: without, nobody has to look for halves.
    _wide: bool

    def reset(self) -> None:
        """Be as new (RIS)."""
        super().reset()
        self.buffer = blank_rows()
        self.pen = pen_of(PLAIN)
        self.last = ""
        self._wide = False

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

    # -- Drawing

    def draw(self, data: str) -> None:
        """Write printing characters at the cursor."""
        charset = self.g1_charset if self.charset else self.g0_charset
        if charset is not LAT1_MAP:
            data = data.translate(charset)
        if data.isascii() and modes.IRM not in self.mode and modes.DECAWM in self.mode:
            self._draw_ascii(data)
        else:
            for char in data:
                self._draw_char(char)
        self.last = data[-1:]

    def repeat(self, count: int) -> None:
        """Draw the last character again, `count` times, at most a row of them (REP).

        Once, when characters are inserted: each moves the rest of the row.
        """
        most = 1 if modes.IRM in self.mode else self.columns
        self.draw(self.last * min(max(1, count), most))

    def alignment_display(self) -> None:
        """Fill the screen with E (DECALN)."""
        cells = dict.fromkeys(range(self.columns), pen_of(PLAIN)["E"])
        for y in range(self.lines):
            # A new row's first update is a copy of the whole table at once.
            row = self.buffer[y] = StaticDefaultDict(BLANK)
            row.update(cells)

    def _draw_ascii(self, data: str) -> None:
        cell_of, columns, length = self.pen.__getitem__, self.columns, len(data)
        at = 0
        while at < length:
            x = self.cursor.x
            if x >= columns:
                self.next_line()
                x = 0
            run = data[at : at + columns - x] if at or length > columns - x else data
            end = x + len(run)
            row = self.buffer[self.cursor.y]
            if self._wide:
                self._split(row, x, end)
            row.update(zip(range(x, end), map(cell_of, run), strict=True))
            self.cursor.x = end
            at += len(run)

    def _draw_char(self, char: str) -> None:
        width = wcwidth(char)
        if width < 1:
            if unicodedata.combining(char):
                self._draw_mark(char)
            return
        if self.cursor.x + width > self.columns:
            if modes.DECAWM in self.mode:
                self.next_line()
            else:
                self.cursor.x = max(0, self.columns - width)
        if modes.IRM in self.mode:
            self.insert_characters(width)
        row, x = self.buffer[self.cursor.y], self.cursor.x
        end = min(x + width, self.columns)
        if self._wide:
            self._split(row, x, end)
        row[x] = self.pen[char]
        if width == 2:
            self._wide = True
            if end == x + 1:
                # The screen has one column.
                row[x] = self.pen[" "]
            else:
                row[x + 1] = self.pen.stub
        self.cursor.x = end

    def _draw_mark(self, mark: str) -> None:
        row, x = self.buffer[self.cursor.y], self.cursor.x - 1
        if x > 0 and not row[x].data:
            x -= 1
        if x >= 0 and len(row[x].data) <= MARKS_MAX:
            row[x] = Cell(unicodedata.normalize("NFC", row[x].data + mark), row[x].style)

    def _split(self, row: Row, start: int, end: int) -> None:
        """Blank the halves that wide characters leave when the cells in between go."""
        if start < self.columns and start and not row[start].data:
            row[start - 1] = Cell(" ", row[start - 1].style)
        if end < self.columns and not row[end].data:
            row[end] = Cell(" ", row[end].style)

    def next_line(self) -> None:
        """Go to the beginning of the next line (NEL)."""
        self.carriage_return()
        self.index()  # as `scrolling` has it

    # -- Inserting and erasing in a row

    def insert_characters(self, count: int | None = None) -> None:
        """Insert `count` blanks at the cursor; the rest of the row goes right (ICH)."""
        row, x, columns = self.buffer[self.cursor.y], self.cursor.x, self.columns
        if x >= columns:
            return
        count = min(count or 1, columns - x)
        if self._wide:
            self._split(row, x, x)
            self._split(row, columns - count, columns - count)
        moved = [row[at] for at in range(x, columns - count)]
        row.update(zip(range(x + count, columns), moved, strict=True))
        row.update(dict.fromkeys(range(x, x + count), self.pen.blank))

    def delete_characters(self, count: int | None = None) -> None:
        """Delete `count` characters at the cursor; the rest of the row comes left (DCH)."""
        row, x, columns = self.buffer[self.cursor.y], self.cursor.x, self.columns
        if x >= columns:
            return
        count = min(count or 1, columns - x)
        if self._wide:
            self._split(row, x, x + count)
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
        if self._wide:
            self._split(row, start, end)
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

    # -- Erasing rows

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
