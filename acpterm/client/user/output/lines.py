"""Decides which characters to print for a text that grows and whose last line may change.

If stdout is a terminal, the current, incomplete line is printed too. When the program overwrites
that line, a carriage return and the new content are printed. This works only for lines that fit the
width: a longer line that was overwritten is printed again once it is complete.

If stdout is not a terminal, only complete lines are printed, so a progress bar is a single line.
"""

from collections.abc import Callable


def last_lines(text: str, number: int) -> str:
    """Return the last `number` lines of a text; all of it if it has fewer.

    The last line may be incomplete, without a newline at its end.
    """
    if not number:
        return ""
    at = len(text) - text.endswith("\n")
    for _ in range(number):
        at = text.rfind("\n", 0, at)
        if at < 0:
            return text
    return text[at + 1 :]


class Lines:
    """Converts each change of a text to the characters to print.

    `width` is None if stdout is not a terminal; otherwise it is a function that returns the number
    of columns of this terminal.
    """

    def __init__(self, width: Callable[[], int] | None) -> None:
        self._width = width
        # The current line as it was printed, and whether the line has changed since in a way that
        # could not be printed.
        self._printed = ""
        self._stale = False
        # The beginning of the current line that is treated as printed, but was skipped.
        self._skipped = ""

    def begin(self, skipped: str) -> None:
        """Leave out `skipped`, the beginning of the current line: treat it as printed already."""
        self._printed = self._skipped = skipped

    def show(self, complete: str, line: str) -> str:
        """Return what to print after the text has changed.

        `complete` has the lines that were completed since the last call, and `line` is the new
        current, incomplete line. The first line in `complete` replaces the `line` of the last call.
        If `complete` is empty, only the current line has changed.
        """
        output = ""
        if complete:
            first, newline, rest = complete.partition("\n")
            output = self._update(first, complete=True) + newline + rest
            self._printed, self._stale, self._skipped = "", False, ""
        if self._width is not None:
            output += self._update(line, complete=False)
        return output

    def finish(self, line: str) -> str:
        """Return what to print to end the current, incomplete line, whose content is `line`."""
        if line == self._printed == self._skipped and not self._stale:
            return ""
        output = self._update(line, complete=True) + "\n"
        self._printed, self._stale, self._skipped = "", False, ""
        return output

    def _update(self, line: str, *, complete: bool) -> str:
        """Return what to print so that stdout shows `line` as the current line.

        `complete` says whether `line` is complete. If the line on stdout cannot be overwritten, an
        incomplete `line` is not printed, and a complete `line` is printed as another line.
        """
        printed = self._printed
        if not self._stale and line.startswith(printed):
            self._printed = line
            return line[len(printed) :]
        width = 0 if self._width is None else self._width()
        if not self._stale and max(_columns(printed), _columns(line)) < width:
            self._printed = line
            return f"\r{' ' * _columns(printed)}\r{line}"
        self._stale = not complete
        if complete:
            self._printed = line
            return f"\n{line}"
        return ""


def _columns(text: str) -> int:
    """Return an upper bound of the columns that a text occupies."""
    return len(text) + sum(not char.isascii() for char in text) + 7 * text.count("\t")
