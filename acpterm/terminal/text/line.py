"""The line that is being printed: cells, and a cursor that the program can move in it.

States and rules:

- A cell is a character (a code point), not a column. Writing at the cursor overwrites.
- CR moves to cell 0, BS one cell left but not below 0. Nothing else moves the cursor: what
  a program paints by moving about is for `screen`.
- Erased cells, and cells that were jumped over, show as blanks if something comes after
  them on the line and as nothing if not. The cells never end with an erased one.
- A line has at most WIDTH cells. A character that would be written after the last one ends
  the line without a newline and is the first of a fresh line, so CR and BS do not cross
  back. It depends on the characters, not on how they arrived.
"""

from __future__ import annotations

import re

#: The most cells of a line, in code points.
WIDTH = 16384

# The three forms of EL (ECMA-48 8.3.41) as single characters. They are C0 characters that
# mean nothing to a terminal, and `controls` drops those from what it is given.
ERASE_RIGHT, ERASE_LEFT, ERASE_LINE = "\x11", "\x12", "\x13"

#: An erased cell. NUL is never written to a line: `controls` drops that too.
_ERASED = "\0"
_TOKEN = re.compile("[^\b\r\x11-\x13]+|\b+|\r+|[\x11-\x13]")


class Line:
    """The current line."""

    __slots__ = ("_cells", "_column")

    def __init__(self) -> None:
        self._cells = ""
        self._column = 0

    @property
    def appending(self) -> bool:
        """Whether the cursor is right behind the last cell, so that writing is appending."""
        return self._column == len(self._cells)

    def text(self) -> str:
        """Return what the line shows."""
        return self._cells.replace(_ERASED, " ")

    def end(self) -> str:
        """Return what the line shows and begin a fresh one."""
        text = self.text()
        self._cells = ""
        self._column = 0
        return text

    def carriage_return(self) -> None:
        """Move the cursor to the first cell."""
        self._column = 0

    def write(self, run: str) -> str:
        """Write printing characters; return the text of the lines that became full."""
        if self._column + len(run) <= WIDTH:
            self._put(run)
            return ""
        ended = []
        at = 0
        while at < len(run):
            if self._column == WIDTH:
                ended.append(self.end())
            room = WIDTH - self._column
            self._put(run[at : at + room])
            at += room
        return "".join(ended)

    def run(self, program: str) -> str:
        """Do as `program` says: characters, LF, CR, BS and the three erasures.

        Returns the text of the lines that ended, with their newlines.
        """
        *lines, rest = program.split("\n")
        only_returns = not any(char in program for char in "\b\x11\x12\x13")
        ended = []
        for line in lines:
            # A whole line, as nearly all are, does without cells and a cursor.
            if only_returns and not self._column and not self._cells and len(line) <= WIDTH:
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
                    self._cells = _flat([self._cells, *runs])
                    self._column = len(runs[-1])
                return ended
        return "".join(map(self._do, _TOKEN.findall(program)))

    def _do(self, token: str) -> str:
        match token[0]:
            case "\r":
                self._column = 0
            case "\b":
                self._column = max(0, self._column - len(token))
            case "\x11":
                self._cells = self._cells[: self._column].rstrip(_ERASED)
            case "\x12":
                # Up to and with the cell under the cursor.
                right = self._cells[self._column + 1 :]
                self._cells = _ERASED * (self._column + 1) + right if right else ""
            case "\x13":
                self._cells = ""
            case _:
                return self.write(token)
        return ""

    def _put(self, run: str) -> None:
        """Write `run`, which fits."""
        cells, column = self._cells, self._column
        end = column + len(run)
        if column == len(cells):
            self._cells = cells + run
        elif column < len(cells):
            self._cells = cells[:column] + run + cells[end:]
        elif run:
            self._cells = cells.ljust(column, _ERASED) + run
        self._column = end


def _flat(runs: list[str]) -> str:
    """Return what shows when each of `runs`, which fit, was written from the first cell on.

    Only what later ones did not cover shows, so the last is looked at first.
    """
    shown = runs[-1]
    for run in reversed(runs):
        if len(run) > len(shown):
            shown += run[len(shown) :]
    return shown
