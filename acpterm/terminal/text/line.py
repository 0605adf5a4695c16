"""The current line: cells, and a cursor that the program can move within the line.

States and rules:

- A cell is a character (a code point), not a column. Writing at the cursor overwrites.
- CR moves the cursor to cell 0; BS moves it one cell left, but not below 0. Movements to other rows
  are for `redraw`. Other cursor movements are ignored: for programs that use them, clients read the
  screen view.
- Erased cells, and cells that the cursor skipped, become blanks if other cells follow on the line.
  Otherwise they are dropped: the last cell is never an erased one.
- A line has at most WIDTH cells. A character that does not fit ends the line without a newline and
  begins a new line, so CR and BS never return to the full line. The result does not depend on how
  the characters were divided into calls.
"""

from __future__ import annotations

import re

#: The maximum number of cells of a line, in code points.
WIDTH = 16384

# The three forms of EL (ECMA-48 8.3.41) as single characters: from the cursor to the end, from the
# beginning to the cursor, and the whole line. These C0 characters have no other meaning in a line
# program, since `controls` drops them from the output.
ERASE_RIGHT, ERASE_LEFT, ERASE_LINE = "\x11", "\x12", "\x13"

#: An erased cell. NUL is never written to a line, because `controls` drops NUL.
_ERASED = "\0"
_TOKEN = re.compile("[^\b\r\x11-\x13]+|\b+|\r+|[\x11-\x13]")


class Line:
    """The line of the output that has no newline yet, and the cursor in this line."""

    __slots__ = ("cells", "column")

    def __init__(self) -> None:
        self.cells = ""
        self.column = 0

    @property
    def appending(self) -> bool:
        """Whether the cursor is just past the last cell, so that writing appends."""
        return self.column == len(self.cells)

    def load(self, cells: str, column: int) -> None:
        self.cells = cells
        self.column = column

    def text(self) -> str:
        return self.cells.replace(_ERASED, " ")

    def end(self) -> str:
        """Return the text of the line, without a newline, and begin a new line."""
        text = self.text()
        self.cells = ""
        self.column = 0
        return text

    def carriage_return(self) -> None:
        self.column = 0

    def write(self, run: str) -> str:
        """Write at the cursor; return the lines that became full, joined without newlines."""
        if self.column + len(run) <= WIDTH:
            self._put(run)
            return ""
        ended = []
        at = 0
        while at < len(run):
            if self.column == WIDTH:
                ended.append(self.end())
            room = WIDTH - self.column
            self._put(run[at : at + room])
            at += room
        return "".join(ended)

    def run(self, program: str) -> str:
        """Apply a line program: text whose only controls are TAB, LF, CR, BS and the erasures.

        Returns the text of the lines that ended; one that ended because it was full has no newline.
        """
        *lines, rest = program.split("\n")
        only_returns = not any(char in program for char in "\b\x11\x12\x13")
        ended = []
        for line in lines:
            # Nearly all lines are complete in `program`, so they need no cells and no cursor.
            if only_returns and not self.column and not self.cells and len(line) <= WIDTH:
                ended.append(_flat(line.split("\r")) if "\r" in line else line)
            else:
                ended.append(self._edit(line, only_returns=only_returns) + self.end())
        ended.append(self._edit(rest, only_returns=only_returns))
        return "\n".join(ended)

    def _edit(self, program: str, *, only_returns: bool) -> str:
        if only_returns:
            first, *runs = program.split("\r")
            if max(map(len, runs), default=0) <= WIDTH:
                ended = self.write(first)
                if runs:
                    self.cells = _flat([self.cells, *runs])
                    self.column = len(runs[-1])
                return ended
        return "".join(map(self.do, _TOKEN.findall(program)))

    def do(self, token: str) -> str:
        """Apply printing characters, or one control, several times if it is CR or BS."""
        match token[0]:
            case "\r":
                self.column = 0
            case "\b":
                self.column = max(0, self.column - len(token))
            case "\x11":
                self.cells = self.cells[: self.column].rstrip(_ERASED)
            case "\x12":
                # EL 1 includes the cell under the cursor.
                right = self.cells[self.column + 1 :]
                self.cells = _ERASED * (self.column + 1) + right if right else ""
            case "\x13":
                self.cells = ""
            case _:
                return self.write(token)
        return ""

    def _put(self, run: str) -> None:
        cells, column = self.cells, self.column
        end = column + len(run)
        if column == len(cells):
            self.cells = cells + run
        elif column < len(cells):
            self.cells = cells[:column] + run + cells[end:]
        elif run:
            self.cells = cells.ljust(column, _ERASED) + run
        self.column = end


def _flat(runs: list[str]) -> str:
    """Return the text of a line on which each of `runs` was written from the first cell on."""
    # A run is visible only where no later run covers it: from last to first.
    visible = runs[-1]
    for run in reversed(runs):
        if len(run) > len(visible):
            visible += run[len(visible) :]
    return visible
