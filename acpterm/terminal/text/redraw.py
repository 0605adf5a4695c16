"""Rows that a program draws again by moving the cursor up, such as the progress of several lines.

States and rules:

- *inactive*: the cursor is in the last line, `Line`; all earlier lines are in the `Tail`. A cursor
  movement to another row makes the region active, and takes the rows that it needs out of the tail.
- *active*: the region has the rows from the highest one that the cursor reached to the lowest one
  that the program used. `Line` is the row with the cursor. An LF in the last row puts all rows back
  into the tail, and the region is inactive again.
- A row is a row of the screen: a line that is longer than the screen is wide has several. The tail
  has lines, so the rows of a line are joined there.
- The cursor moves no higher than the top of the screen, so rows that have scrolled off stay. It
  also stays below the row at which a program last did what this module does not follow: place the
  cursor by row number, scroll, clear the screen.
- If the first output is missing, the rows above the text are *unknown*, and so are rows whose text
  is beyond the limit. A row that stays unknown is not part of the text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from acpterm.terminal.text.line import ERASE_LEFT, ERASE_RIGHT

if TYPE_CHECKING:
    from acpterm.terminal.text.line import Line
    from acpterm.terminal.text.tail import Tail

#: The controls of a line program for rows: one row up, one row down, erase from the cursor to the
#: end of the screen, and what is not followed.
UP, DOWN, ERASE_BELOW, UNFOLLOWED = "\x14", "\x15", "\x16", "\x17"
ROW_MARKS: Final = (UP + DOWN + ERASE_BELOW + UNFOLLOWED).encode()
#: The maximum number of rows of one movement.
MOVE_MAX_ROWS: Final = 256

_UNKNOWN: Final = UNFOLLOWED
_BLANK: Final = f"\0 {_UNKNOWN}"
_UNKNOWN_LINE: Final = f"{_UNKNOWN}\n"
_MOVE: Final = re.compile("[\x14\x15]")
_TOKEN: Final = re.compile("\b+|[\n\r\x11-\x13\x16\x17]|\x14+|\x15+|[^\b\n\r\x11-\x17]+")
_WITHOUT_MARKS: Final = {ord(ERASE_BELOW): ERASE_RIGHT, ord(UNFOLLOWED): None}


class Redraw:
    """The region of rows that the program draws again; not `complete`: output before is missing."""

    __slots__ = (
        "_above",
        "_at",
        "_cols",
        "_ends",
        "_floor",
        "_height",
        "_line",
        "_rows",
        "_tail",
        "_top",
    )

    def __init__(self, tail: Tail, line: Line, size: tuple[int, int], *, complete: bool) -> None:
        self._tail = tail
        self._line = line
        self._cols, self._height = size
        #: Whether nothing is above the row that begins at `_floor` of the tail.
        self._top = complete
        self._floor = 0
        # The rows, and what follows each in the text: a newline, or nothing if the line continues.
        self._rows: list[str] = []
        self._ends: list[str] = []
        #: The last row that was put into the tail, if it is known.
        self._above: str | None = None
        #: The index of the row with the cursor, whose cells are in `_line` instead of `_rows`.
        self._at = 0

    @property
    def active(self) -> bool:
        """Whether there are rows, so that all output is for `run`."""
        return bool(self._rows)

    @property
    def size(self) -> tuple[int, int]:
        return self._cols, self._height

    def resize(self, cols: int, rows: int) -> None:
        """Set the size of the screen. Rows that are drawn already are not wrapped again."""
        self._cols, self._height = cols, max(1, rows)
        self._scroll()
        self._above = None

    def run(self, program: str) -> None:
        """Apply `program`, a line program that moves between rows, to line and tail."""
        at = 0
        while at < len(program):
            if self._rows:
                at = self._run_rows(program, at)
                continue
            move = _MOVE.search(program, at)
            end = move.start() if move else len(program)
            before, mark, after = program[at:end].rpartition(UNFOLLOWED)
            if mark:
                self._tail.add(self._line.run(before.translate(_WITHOUT_MARKS)).encode())
                self.begin_screen()
            self._tail.add(self._line.run(after.translate(_WITHOUT_MARKS)).encode())
            if move:
                self._enter()
            at = end

    def begin_screen(self) -> None:
        """Keep all rows above the current line: nothing moves the cursor there."""
        self._floor, self._top = self._tail.total, True

    def text(self) -> str:
        """Return the text of the rows: up to the cursor, or to the last row that is not empty."""
        self._rows[self._at] = self._line.text()
        last = self._last()
        end = "\n" if self._at < last < len(self._rows) - 1 else ""
        joined = self._joined(last) + self._rows[last].replace("\0", " ") + end
        return without_unknown(joined).removesuffix(_UNKNOWN)

    def _last(self) -> int:
        """Return the index of the last row that is not empty, or of the row with the cursor."""
        last = len(self._rows) - 1
        while last > self._at and not self._rows[last].strip(_BLANK):
            last -= 1
        return last

    def _joined(self, end: int) -> str:
        """Return the text of the first `end` rows, with newlines."""
        # A line continues in the next row only if that row could not be a part of this one.
        # Otherwise the rows would be counted wrongly when they are taken out of the tail again.
        is_split = self._tail.last(1) not in {b"", b"\n"} and not self._continues(-1)
        parts = ["\n"] if is_split else []
        for at, (row, after) in enumerate(zip(self._rows[:end], self._ends, strict=False)):
            parts += [row, after if self._continues(at) else "\n"]
        return "".join(parts).replace("\0", " ")

    def _continues(self, at: int) -> bool:
        """Return whether the line of the row may continue in the next one; -1 is the row above."""
        row = self._rows[at] if at >= 0 else self._above
        following = self._rows[at + 1][:1]
        return bool(following) and (row is None or not _fitting(row, following, self._cols))

    def _run_rows(self, program: str, at: int) -> int:
        """Apply `program` from index `at` on, until the region is inactive; return the index."""
        for token in _TOKEN.finditer(program, at):
            self._do(token[0])
            if not self._rows:
                return token.end()
        return len(program)

    def _do(self, token: str) -> None:
        is_last = self._at == len(self._rows) - 1
        match token[0]:
            case "\x14":
                self._up(len(token))
            case "\x15":
                self._down(len(token))
            case "\x16":
                self._erase_below()
            case "\x17":
                self._leave("" if is_last else "\n")
                self.begin_screen()
            case "\n":
                self._line.carriage_return()
                if is_last:
                    self._leave("\n")
                else:
                    self._move(self._at + 1)
            case "\b" | "\r":
                self._line.do(token)
            case "\x11" | "\x12" | "\x13":
                self._touch()
                if token != ERASE_LEFT:
                    self._ends[self._at] = "\n"
                self._line.do(token)
            case _:
                self._touch()
                self._write(token)

    def _enter(self) -> None:
        """Become active, with the rows of the current line."""
        cells, column = self._line.cells, self._line.column
        self._rows = _wrapped(cells, self._cols)
        if not cells and not self._top and not self._tail.total:
            self._rows = [_UNKNOWN]
        self._ends = [""] * len(self._rows)
        before = 0
        self._at = 0
        while self._at < len(self._rows) - 1 and column >= before + len(self._rows[self._at]):
            before += len(self._rows[self._at])
            self._at += 1
        self._line.load(self._rows[self._at], column - before)
        self._scroll()

    def _leave(self, end: str) -> None:
        """Put all rows into the tail, and `end` after them if they end lines; begin a line."""
        self._rows[self._at] = self._line.cells
        if end:
            last = self._last()
            text = self._joined(last) + self._rows[last].replace("\0", " ") + end
            self._line.load("", 0)
        else:
            text = self._joined(len(self._rows) - 1)
            self._touch()
        self._tail.add(text.encode())
        self._rows, self._ends, self._above, self._at = [], [], None, 0

    def _scroll(self) -> None:
        """Put the rows that do not fit on the screen into the tail, from the top."""
        over = min(len(self._rows) - self._height, self._at)
        if over > 0:
            self._tail.add(self._joined(over).encode())
            self._above = self._rows[over - 1]
            del self._rows[:over], self._ends[:over]
            self._at -= over

    def _move(self, at: int) -> None:
        self._rows[self._at] = self._line.cells
        self._at = at
        self._line.load(self._rows[at], self._line.column)

    def _stay_inside(self) -> None:
        # After the last column of a row the cursor waits for the next character, but no movement.
        if self._line.column >= self._cols:
            self._line.load(self._line.cells, self._cols - 1)

    def _touch(self) -> None:
        """Make the row with the cursor a known one, since the program draws it."""
        if self._line.cells == _UNKNOWN:
            self._line.load("", self._line.column)

    def _up(self, count: int) -> None:
        if count > self._at:
            self._pull(count - self._at)
        self._move(max(0, self._at - count))
        self._stay_inside()

    def _down(self, count: int) -> None:
        below = len(self._rows) - 1 - self._at
        if count > below:
            if self._top:
                self._pull(self._height)
            blank = "" if self._top else _UNKNOWN
            added = max(0, min(count - below, self._height - len(self._rows)))
            self._ends[-1:] = ["\n"] * (added + 1)
            self._rows += [blank] * added
        self._move(min(self._at + count, len(self._rows) - 1))
        self._stay_inside()

    def _erase_below(self) -> None:
        self._touch()
        self._line.do(ERASE_RIGHT)
        below = len(self._rows) - 1 - self._at
        self._rows[self._at + 1 :] = [""] * below
        self._ends[self._at :] = ["\n"] * (below + 1)

    def _pull(self, count: int) -> None:
        """Take at least `count` rows out of the tail, as far as they are on the screen."""
        count = min(count, self._height - len(self._rows))
        if count <= 0:
            return
        rows: list[str] = []
        ends: list[str] = []
        for line in self._tail.pop_lines(count, self._floor):
            found = _wrapped(line.removesuffix("\n"), self._cols)
            rows += found
            ends += [""] * (len(found) - 1) + ["\n" if line.endswith("\n") else ""]
        if len(rows) < count and not (self._top and self._tail.total <= self._floor):
            unknown = count - len(rows)
            rows[:0] = [_UNKNOWN] * unknown
            ends[:0] = ["\n"] * unknown
        self._rows[:0] = rows
        self._ends[:0] = ends
        self._at += len(rows)
        self._scroll()

    def _write(self, run: str) -> None:
        while run:
            column = self._line.column
            fitting = _fitting(self._line.cells[:column].ljust(column), run, self._cols)
            if fitting == 0:
                self._wrap()
                # At least one character, if the screen is narrower than the character.
                fitting = _fitting("", run, self._cols) or 1
            self._line.do(run[:fitting])
            run = run[fitting:]

    def _wrap(self) -> None:
        self._line.carriage_return()
        self._ends[self._at] = ""
        if self._at == len(self._rows) - 1:
            self._rows.append("")
            self._ends.append("")
        self._move(self._at + 1)
        self._scroll()
        self._touch()


def without_unknown(text: str) -> str:
    return text.replace(_UNKNOWN_LINE, "") if _UNKNOWN in text else text


def _wrapped(line: str, cols: int) -> list[str]:
    """Return the rows that `line` has on a screen of `cols` columns."""
    rows = []
    at = 0
    while at < len(line) or not at:
        size = _fitting("", line[at : at + 2 * cols], cols) or 1
        rows.append(line[at : at + size])
        at += size
    return rows


def _fitting(before: str, run: str, cols: int) -> int:
    """Return how many characters of `run` fit into a row that has `before` to the left."""
    cells = before + run
    if cells.isascii() and "\t" not in cells:
        return max(0, min(len(run), cols - len(before)))
    column = 0
    for number, char in enumerate(cells):
        if char == "\t":
            # A TAB moves to the last column at most.
            column = max(column, min(column // 8 * 8 + 8, cols - 1))
        else:
            column += 1 if char.isascii() else _columns(char)
        if column > cols and number >= len(before):
            return number - len(before)
    return len(run)


@lru_cache(maxsize=1024)
def _columns(char: str) -> int:
    from wcwidth import wcwidth  # noqa: PLC0415  slow to import, and rarely needed

    return max(0, wcwidth(char))
