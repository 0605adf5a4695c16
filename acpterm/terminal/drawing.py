"""What draws on a screen: characters, wide ones, marks, and at the end of a row the next one.

Imports pyte. Rules:

- A character has at most MARKS_MAX combining marks.
- DECALN draws by the row, and REP stays within the width: no control function takes much longer
  than the screen has rows, or a row has columns.
"""

from __future__ import annotations

import unicodedata

from pyte import modes
from pyte.charsets import LAT1_MAP
from pyte.screens import StaticDefaultDict
from wcwidth import wcwidth

from acpterm.terminal.scrolling import Scrolling
from acpterm.terminal.style import BLANK, PLAIN, Cell, pen_of

#: More than any script needs.
MARKS_MAX = 8


class Drawing(Scrolling):
    """One screen, which can be drawn on."""

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

    def next_line(self) -> None:
        """Go to the beginning of the next line (NEL)."""
        self.carriage_return()
        self.index()

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
            if self.has_wide:
                self.split_halves(row, x, end)
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
        if self.has_wide:
            self.split_halves(row, x, end)
        row[x] = self.pen[char]
        if width == 2:
            self.has_wide = True
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
