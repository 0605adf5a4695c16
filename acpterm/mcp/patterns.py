"""Regular expressions that the model gives.

Some of them, such as ``(a+)+$``, take a time that grows exponentially with the text. A search runs
in a thread, which lets other Python code run meanwhile, and ends after `TIMEOUT_S` with an error
for the model. Others, such as ``((a{1000}){1000}){1000}``, take as much memory as text that they
match has at least: they are refused (`_length`).
"""

import re
from collections.abc import Iterable
from time import monotonic
from typing import Final, cast

import anyio.to_thread
import regex

from acpterm.mcp.tool_error import ToolError

TIMEOUT_S: Final = 0.5
LENGTH_MAX: Final = 10_000
_LEAST_S: Final = 1e-6
# One element of a pattern: an escaped character, a set, a parenthesis, a count, or a character.
_ELEMENT: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|(?P<open>\()|(?P<close>\))|\{\s*(?P<count>\d+)[^}]*\}|.",
    re.DOTALL,
)


class ModelPattern:
    """A regular expression with limits. Raises `ToolError` if it is invalid or too large."""

    def __init__(self, pattern: str) -> None:
        self.pattern: Final = pattern
        if _length(pattern) > LENGTH_MAX:
            raise ToolError(
                f"{pattern[:200]!r} is too large a regular expression: use fewer repetitions"
            )
        try:
            self._compiled: Final = regex.compile(pattern, regex.MULTILINE)
        except (regex.error, RecursionError) as error:
            raise ToolError(
                f"{pattern!r} is not a regular expression: {error}; escape its special characters"
            ) from error

    async def search(self, text: str, pos: int = 0) -> re.Match[str] | None:
        """Return the first match at `pos` or later. Raises `ToolError`."""
        return await anyio.to_thread.run_sync(self._search, text, pos, TIMEOUT_S)

    async def matching(self, lines: Iterable[str]) -> list[tuple[int, str]]:
        """Return the lines that match, with their numbers from 0. Raises `ToolError`.

        The time limit is for all of them together.
        """
        return await anyio.to_thread.run_sync(self._matching, lines)

    def _matching(self, lines: Iterable[str]) -> list[tuple[int, str]]:
        end = monotonic() + TIMEOUT_S
        return [
            (number, line)
            for number, line in enumerate(lines)
            if self._search(line, 0, end - monotonic())
        ]

    def _search(self, text: str, pos: int, timeout: float) -> re.Match[str] | None:
        try:
            # The timeout must be more than 0.
            found = self._compiled.search(
                text, pos, concurrent=True, timeout=max(timeout, _LEAST_S)
            )
        except TimeoutError as error:
            raise ToolError(
                f"the regular expression {self.pattern!r} is too slow for this output: "
                "use a simpler one, without repetitions inside of repetitions"
            ) from error
        # A match of `regex` has all that one of `re` has.
        return cast("re.Match[str] | None", found)


def _length(pattern: str) -> int:
    """Return about how many characters a match has at least, if repetitions are counted.

    It is never too small: alternatives are added up, and comments count.
    """
    groups = [0]
    last = 0
    for element in _ELEMENT.finditer(pattern):
        if element["open"]:
            groups.append(0)
            last = 0
        elif element["count"]:
            more = last * (int(element["count"][:9]) - 1)
            groups[-1] += max(0, more)
            last += max(0, more)
        else:
            last = groups.pop() if element["close"] and len(groups) > 1 else 1
            groups[-1] += last
    return sum(groups)
