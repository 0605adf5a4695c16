"""Regular expressions that the model gives.

Some of them, such as ``(a+)+$``, take a time that grows exponentially with the text. A search
blocks the server, so it ends after `TIMEOUT_S` with an error for the model.
"""

import re
from collections.abc import Iterable
from time import monotonic
from typing import Final, cast

import regex

from acpterm.mcp.tool_error import ToolError

TIMEOUT_S: Final = 0.5
_LEAST_S: Final = 1e-6


class ModelPattern:
    """A regular expression with a time limit. Raises `ToolError` if it is invalid or too slow."""

    def __init__(self, pattern: str) -> None:
        self.pattern: Final = pattern
        try:
            self._compiled: Final = regex.compile(pattern, regex.MULTILINE)
        except regex.error as error:
            raise ToolError(
                f"{pattern!r} is not a regular expression: {error}; escape its special characters"
            ) from error

    def search(self, text: str, pos: int = 0) -> re.Match[str] | None:
        """Return the first match at `pos` or later. Raises `ToolError`."""
        return self._search(text, pos, TIMEOUT_S)

    def matching(self, lines: Iterable[str]) -> list[tuple[int, str]]:
        """Return the lines that match, with their numbers from 0. Raises `ToolError`.

        The time limit is for all of them together.
        """
        end = monotonic() + TIMEOUT_S
        return [
            (number, line)
            for number, line in enumerate(lines)
            if self._search(line, 0, end - monotonic())
        ]

    def _search(self, text: str, pos: int, timeout: float) -> re.Match[str] | None:
        try:
            # The timeout must be more than 0.
            found = self._compiled.search(text, pos, timeout=max(timeout, _LEAST_S))
        except TimeoutError as error:
            raise ToolError(
                f"the regular expression {self.pattern!r} is too slow for this output: "
                "use a simpler one, without repetitions inside of repetitions"
            ) from error
        # A match of `regex` has all that one of `re` has.
        return cast("re.Match[str] | None", found)
