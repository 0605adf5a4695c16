"""Search for a regular expression in a growing text, with bounded memory."""

import re
from typing import Final

# Characters of searched text that are kept. A longer match is not found.
RETAINED_CHARS: Final = 64 * 1024


class LineSearch:
    """Searches for `pattern`, also across the boundaries of parts."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern: Final = pattern
        self._retained = ""
        # Where to search from: 1 if the first retained character is in the middle of a line.
        self._begin = 0

    def find(self, over: str, line: str) -> str | None:
        """Search new complete lines and the current line; return the lines of a match."""
        text = self._retained + over + line
        if found := self._pattern.search(text, self._begin):
            begin = text.rfind("\n", 0, found.start()) + 1
            end = text.find("\n", max(found.start(), found.end() - 1))
            return text[begin : len(text) if end < 0 else end]
        self._keep(self._retained + over)
        return None

    def forget(self) -> None:
        """Drop the retained text, because text is missing after it: no match spans the gap."""
        self._retained, self._begin = "", 0

    def _keep(self, text: str) -> None:
        """Retain the last `RETAINED_CHARS` characters, or fewer to begin with a whole line."""
        if len(text) <= RETAINED_CHARS:
            self._retained = text
            return
        at = text.find("\n", len(text) - RETAINED_CHARS - 1) + 1
        # If no line begins there, the search starts after one more character, so ^ does not match.
        whole = 0 < at < len(text)
        self._retained, self._begin = (text[at:], 0) if whole else (text[-RETAINED_CHARS:], 1)
