"""Looks for a regular expression in a text that grows, within bounded memory."""

import re
from typing import Final

# Characters that are kept of what was looked through: no match that is longer is found.
KEPT: Final = 64 * 1024


class Matching:
    """Looks for `pattern`, also where parts of the text meet."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern: Final = pattern
        # Lines that are over; of the last one, what of it is over.
        self._kept = ""

    def find(self, over: str, line: str) -> str | None:
        """Look through the lines that are over now and the current one: the lines of a match."""
        text = self._kept + over + line
        if found := self._pattern.search(text):
            begin = text.rfind("\n", 0, found.start()) + 1
            end = text.find("\n", max(found.start(), found.end() - 1))
            return text[begin : len(text) if end < 0 else end]
        self._kept = _tail(self._kept + over)
        return None

    def forget(self) -> None:
        """Learn that something is missing: no match goes across that."""
        self._kept = ""


def _tail(text: str) -> str:
    """Give the last `KEPT` characters or less, from the beginning of a line on if possible."""
    if len(text) <= KEPT:
        return text
    at = text.find("\n", len(text) - KEPT - 1) + 1
    return text[at:] if 0 < at < len(text) else text[-KEPT:]
