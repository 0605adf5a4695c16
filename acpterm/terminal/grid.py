"""The cells of a screen: pyte's, with what it lacks and without what is wrong in it.

Imports pyte: only `emulator` imports this module.

Rules:

- The alternate screen begins blank; when it is left the main screen is as it was, and with
  mode 1049 the cursor is where it was.
- A wide character takes two cells, the second empty; a half that was overwritten is blank.
- A character has at most MARKS_MAX combining marks, and there is one saved cursor for each
  screen: what a program prints does not make the screen grow.
- All cells have the default colours, so a row that is erased is one that was never written to.
- No control function takes much longer than the screen has rows, or a row has columns: those that
  touch every cell (DECALN, ED) do so by the row, and REP stays within the width.
"""

from __future__ import annotations

import copy
import unicodedata
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import pyte
from pyte import modes
from pyte.charsets import LAT1_MAP
from pyte.screens import Char, Cursor, Margins, StaticDefaultDict
from wcwidth import wcwidth

if TYPE_CHECKING:
    from collections.abc import Callable

#: More than any script needs.
MARKS_MAX = 8

_ASCII = {chr(code): Char(chr(code)) for code in range(0x20, 0x7F)}
_BLANK = _ASCII[" "]
_STUB = Char("")

_Row = StaticDefaultDict[int, Char]
_Rows = dict[int, _Row]


class _Saved(NamedTuple):
    cursor: Cursor
    g0_charset: str
    g1_charset: str
    charset: int
    modes: frozenset[int]


def _blank() -> _Rows:
    return defaultdict(lambda: StaticDefaultDict(_BLANK))


class Grid(pyte.Screen):
    """The main and the alternate screen, and the cursor."""

    _saved: _Saved | None
    #: The main screen and its saved cursor, while the alternate one is shown.
    _main: tuple[_Rows, _Saved | None] | None
    #: The last character drawn.
    _last: str

    def rows_shown(self) -> list[str]:
        """Return the text of each row, as wide as its last cell written to."""
        return [
            self._row_shown(self.buffer[y]) if y in self.buffer else "" for y in range(self.lines)
        ]

    def _row_shown(self, row: _Row) -> str:
        cells = [row[x].data for x in range(min(self.columns, max(row, default=-1) + 1))]
        text = "".join(cells)
        if text.isascii() and "" not in cells:
            return text
        for x, cell in enumerate(cells):
            left_over = not cell and not (x and _is_wide(cells[x - 1]))
            if left_over or (_is_wide(cell) and cells[x + 1 : x + 2] != [""]):
                cells[x] = " "
        return "".join(cells)

    # -- Resetting, saving, switching

    def reset(self) -> None:
        """Be as new (RIS)."""
        super().reset()
        self.buffer = _blank()
        self._saved = None
        self._main = None
        self._last = ""

    def save_cursor(self) -> None:
        """Save the cursor, in place of what was saved before (DECSC)."""
        kept = frozenset(self.mode & {modes.DECOM, modes.DECAWM})
        cursor = copy.copy(self.cursor)
        self._saved = _Saved(cursor, self.g0_charset, self.g1_charset, self.charset, kept)

    def restore_cursor(self) -> None:
        """Put the cursor where it was saved, or at home (DECRC)."""
        self.mode -= {modes.DECOM}
        if self._saved is None:
            self.cursor_position()
            return
        cursor, self.g0_charset, self.g1_charset, self.charset, kept = self._saved
        self.mode = self.mode - {modes.DECAWM} | kept
        self.cursor = copy.copy(cursor)
        self.cursor.x = min(self.cursor.x, self.columns)
        self.cursor.y = min(self.cursor.y, self.lines - 1)

    def alternate(self, on: bool, *, with_cursor: bool) -> None:
        """Show the alternate screen, blank, or the main one again (XTerm 47, 1047, 1049)."""
        if on and self._main is None:
            if with_cursor:
                self.save_cursor()
            self._main = self.buffer, self._saved
            self.buffer, self._saved = _blank(), None
        elif not on and self._main is not None:
            self.buffer, self._saved = self._main
            self._main = None
            if with_cursor:
                self.restore_cursor()

    def set_size(self, cols: int, rows: int) -> None:
        """Change the size; see `Screen.resize`."""
        if (cols, rows) == (self.columns, self.lines):
            return
        self.columns, self.lines = cols, rows
        self.margins = None
        self.tabstops = set(range(8, cols, 8))
        if self._main is not None:
            buffer, saved = self._main
            cursor = saved.cursor if saved else copy.copy(self.cursor)
            self._main = self._clipped(buffer, cursor), saved
        self.buffer = self._clipped(self.buffer, self.cursor)

    def _clipped(self, buffer: _Rows, cursor: Cursor) -> _Rows:
        up = max(0, cursor.y - self.lines + 1)
        cursor.y -= up
        cursor.x = min(cursor.x, self.columns - 1)
        clipped = _blank()
        for y, row in buffer.items():
            if 0 <= y - up < self.lines:
                clipped[y - up] = row
                for x in [x for x in row if x >= self.columns]:
                    del row[x]
        return clipped

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
        self._last = data[-1:]

    def repeat(self, count: int) -> None:
        """Draw the last character again, `count` times, at most a row of them (REP).

        Once, when characters are inserted: each moves the rest of the row.
        """
        most = 1 if modes.IRM in self.mode else self.columns
        self.draw(self._last * min(max(1, count), most))

    def alignment_display(self) -> None:
        """Fill the screen with E (DECALN)."""
        cells = dict.fromkeys(range(self.columns), _ASCII["E"])
        for y in range(self.lines):
            # A new row's first update is a copy of the whole table at once.
            row = self.buffer[y] = StaticDefaultDict(_BLANK)
            row.update(cells)

    def _draw_ascii(self, data: str) -> None:
        at = 0
        while at < len(data):
            x = self.cursor.x
            if x >= self.columns:
                self.next_line()
                x = 0
            run = data[at : at + self.columns - x]
            cells = [_ASCII[char] for char in run]
            self.buffer[self.cursor.y].update(zip(range(x, x + len(run)), cells, strict=True))
            self.cursor.x = x + len(run)
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
        row[x] = Char(char)
        if width == 2:
            row[x + 1] = _STUB
        self.cursor.x = min(x + width, self.columns)

    def _draw_mark(self, mark: str) -> None:
        row, x = self.buffer[self.cursor.y], self.cursor.x - 1
        if x > 0 and not row[x].data:
            x -= 1
        if x >= 0 and len(row[x].data) <= MARKS_MAX:
            row[x] = Char(unicodedata.normalize("NFC", row[x].data + mark))

    # -- Moving

    def next_line(self) -> None:
        """Go to the beginning of the next line (NEL)."""
        self.carriage_return()
        self.index()

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

    def cursor_to_line(self, line: int | None = None) -> None:
        """Go to a line in the same column (VPA)."""
        self.cursor_position(line, self.cursor.x + 1)

    # -- Scrolling and erasing

    def set_region(self, top: int, bottom: int) -> None:
        """Set the first and last line of the scrolling region, from 1 (DECSTBM)."""
        top, bottom = max(1, top), min(bottom or self.lines, self.lines)
        if top < bottom:
            self.margins = Margins(top - 1, bottom - 1)
            self.cursor_position()

    def index(self) -> None:
        """Go down a line; at the bottom margin the region scrolls up (IND)."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if self.cursor.y != bottom:
            self.cursor_down()
            return
        buffer = self.buffer
        buffer.pop(top, None)
        for y in range(top, bottom):
            if row := buffer.pop(y + 1, None):
                buffer[y] = row

    def scroll_up(self, count: int) -> None:
        """Scroll the region up by `count` lines (SU)."""
        self._at_margin(Grid.delete_lines, count)

    def scroll_down(self, count: int) -> None:
        """Scroll the region down by `count` lines (SD)."""
        self._at_margin(Grid.insert_lines, count)

    def _at_margin(self, what: Callable[[Grid, int], None], count: int) -> None:
        x, y = self.cursor.x, self.cursor.y
        self.cursor.y = self.margins.top if self.margins else 0
        what(self, count)
        self.cursor.x, self.cursor.y = x, y

    def delete_lines(self, count: int | None = None) -> None:
        """Delete `count` lines at the cursor; those below come up (DL)."""
        top, bottom = self.margins or Margins(0, self.lines - 1)
        if top <= self.cursor.y <= bottom:
            for y in range(self.cursor.y, bottom + 1):
                self.buffer.pop(y, None)
                source = y + (count or 1)
                if source <= bottom and source in self.buffer:
                    self.buffer[y] = self.buffer.pop(source)
            self.carriage_return()

    def erase_in_display(self, how: int = 0, *_args: object, **_kwargs: object) -> None:
        """Erase from the cursor on, up to it, or all (ED 0 to 2); 3 is for what scrolled off."""
        y = self.cursor.y
        rows = {0: range(y + 1, self.lines), 1: range(y), 2: range(self.lines)}.get(how)
        if rows is None:
            return
        if len(rows) == self.lines:
            self.buffer.clear()
        for row in [row for row in self.buffer if row in rows]:
            del self.buffer[row]
        if how < 2:
            self.erase_in_line(how)

    def erase_in_line(self, how: int = 0, private: bool = False) -> None:
        """Erase from the cursor on, up to it, or the whole line (EL 0 to 2)."""
        if how <= 2:
            super().erase_in_line(how, private)


def _is_wide(cell: str) -> bool:
    return not cell.isascii() and wcwidth(cell[0]) == 2
