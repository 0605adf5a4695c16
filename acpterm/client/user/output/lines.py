"""A text printed as it comes, line by line; and its last lines.

In a window the line that is not over is seen, too, and written over as the program does it, as far
as a carriage return can: a line that is longer than the window, and was written over, is printed
again when it is over. Elsewhere a line is printed when it is over: a progress bar is one line.
"""

import os
from collections.abc import Callable


def last_lines(text: str, number: int) -> str:
    """Give the last lines of a text, the last of which need not be over."""
    if not number:
        return ""
    at = len(text) - text.endswith("\n")
    for _ in range(number):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


class Lines:
    """Makes what to print of news. `width` gives the window's columns; None is no window."""

    def __init__(self, width: Callable[[], int] | None) -> None:
        self._width = width
        # What is to be seen of the current line; and whether it is something else by now.
        self._seen = ""
        self._stale = False
        # What counts as seen, and was not printed.
        self._left_out = ""

    def begin(self, seen: str) -> None:
        """Note what of the current line is not to be printed."""
        self._seen = self._left_out = seen

    def show(self, over: str, line: str) -> str:
        """Print lines that are over, and what the current one shows."""
        shown = ""
        if over:
            first, newline, rest = over.partition("\n")
            shown = self._become(first, over=True) + newline + rest
            self._seen, self._stale, self._left_out = "", False, ""
        if self._width is not None:
            shown += self._become(line, over=False)
        return shown

    def finish(self, line: str) -> str:
        """Print what is left of a line that will not be over; the next begins anew."""
        if line == self._seen == self._left_out and not self._stale:
            return ""
        shown = self._become(line, over=True) + "\n"
        self._seen, self._stale, self._left_out = "", False, ""
        return shown

    def _become(self, line: str, *, over: bool) -> str:
        """Have the current line be `line`."""
        seen = self._seen
        if not self._stale and line.startswith(seen):
            self._seen = line
            return line[len(seen) :]
        width = 0 if self._width is None else self._width()
        if not self._stale and max(_columns(seen), _columns(line)) < width:
            self._seen = line
            return f"\r{' ' * _columns(seen)}\r{line}"
        self._stale = not over
        if over:
            self._seen = line
            return f"\n{line}"
        return ""


def _columns(text: str) -> int:
    """Give how many columns a text takes, or more."""
    return len(text) + sum(not char.isascii() for char in text) + 7 * text.count("\t")


def window() -> Callable[[], int] | None:
    """Give how to find the columns of the window that stdout is; None if it is none."""
    if not os.isatty(1):
        return None
    return lambda: os.get_terminal_size(1).columns or 80
