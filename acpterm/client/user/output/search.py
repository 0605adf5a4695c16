"""Looks for a regular expression in a text that grows, within bounded memory."""

import re
from typing import Final

# Characters that are kept of what was looked through: no match that is longer is found.
RETAINED_CHARS: Final = 64 * 1024


class LineSearch:
    """Looks for `pattern`, also where parts of the text meet."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern: Final = pattern
        self._retained = ""
        # Where to begin in it: behind its first character, if that is in the middle of a line.
        self._begin = 0

    def find(self, over: str, line: str) -> str | None:
        """Look through the lines that are over now and the current one: the lines of a match."""
        text = self._retained + over + line
        if found := self._pattern.search(text, self._begin):
            begin = text.rfind("\n", 0, found.start()) + 1
            end = text.find("\n", max(found.start(), found.end() - 1))
            return text[begin : len(text) if end < 0 else end]
        self._keep(self._retained + over)
        return None

    def forget(self) -> None:
        """Learn that something is missing: no match goes across that."""
        self._retained, self._begin = "", 0

    def _keep(self, text: str) -> None:
        """Keep the last `KEPT` characters or less, from the beginning of a line on if possible."""
        if len(text) <= RETAINED_CHARS:
            self._retained = text
            return
        at = text.find("\n", len(text) - RETAINED_CHARS - 1) + 1
        # Where no line begins, one character more says so to ^.
        whole = 0 < at < len(text)
        self._retained, self._begin = (text[at:], 0) if whole else (text[-RETAINED_CHARS:], 1)
