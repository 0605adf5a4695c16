"""Regular expressions from the model, with limits of time and memory.

For some expressions, such as ``(a+)+$``, the time of a search grows exponentially with the length
of the text. So a search ends after `TIMEOUT_S` of processor time with an error for the model. It
runs in a thread, so that other Python code can run meanwhile. `regex` counts the time of all
threads, so a busy other thread may halve the time of one search.

An expression such as ``((a{1000}){1000}){1000}`` needs as much memory as the shortest text that it
matches. `_length` estimates the length of this text. If the estimate is more than `LENGTH_MAX`
characters, the expression is refused.
"""

import re
from collections.abc import Iterable
from time import thread_time
from typing import Final, cast

import regex
from anyio import to_thread

from acpterm.mcp.tool_error import ToolError

TIMEOUT_S: Final = 0.5
LENGTH_MAX: Final = 10_000
_LEAST_S: Final = 1e-6
# One element of a pattern: an escaped character, a set, a comment, a parenthesis, a count, or a
# character.
_ELEMENT: Final = re.compile(
    r"\\.|\[\^?\]?(?:\\.|[^]\\])*\]|(?P<comment>\(\?#[^)]*\))"
    r"|(?P<open>\()|(?P<close>\))|\{\s*(?P<count>\d+)[^}]*\}|.",
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

    async def matching(self, lines: Iterable[str]) -> list[tuple[int, str]]:
        """Return the lines that match, each with its number. Raises `ToolError` if slow."""
        return await to_thread.run_sync(self._matching, lines)

    def _matching(self, lines: Iterable[str]) -> list[tuple[int, str]]:
        end = thread_time() + TIMEOUT_S
        return [
            (number, line)
            for number, line in enumerate(lines)
            if self.search(line, 0, end - thread_time())
        ]

    def search(self, text: str, pos: int, timeout: float) -> re.Match[str] | None:
        """Return the first match from `pos` on. In a thread: it may work for `timeout` seconds."""
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
        # A match of `regex` has all members of a match of `re`.
        return cast("re.Match[str] | None", found)


class NewOutput:
    """Searches for a pattern in the output since the last input, except in the input's echo.

    A match after the first `shown` characters is preferred. If there is none, but one between
    `matched` and `shown`, `was_shown` is true after the search.
    """

    def __init__(
        self, pattern: ModelPattern, *, shown: int = 0, matched: int = 0, typed: str = ""
    ) -> None:
        self._pattern: Final = pattern
        self._shown: Final = shown
        self._matched: Final = matched
        self._typed: Final = [each for each in map(_printable, typed.splitlines()) if each]
        self.was_shown = False

    async def search(self, text: str, pos: int = 0) -> re.Match[str] | None:
        """Return the first match from `pos` on. Raises `ToolError` if it is too slow."""
        # A result may have shown only the beginning of the line that matches.
        line = text.rfind("\n", 0, self._shown) + 1
        match = await to_thread.run_sync(self._search, text, max(pos, line), self._shown)
        if match is None and pos < self._shown:
            shown = text[: self._shown]
            match = await to_thread.run_sync(self._search, shown, self._matched, 0)
            self.was_shown = match is not None
        return match

    def _search(self, text: str, begin: int, shown: int) -> re.Match[str] | None:
        end = thread_time() + TIMEOUT_S
        while begin <= len(text):
            match = self._pattern.search(text, begin, end - thread_time())
            if match is None:
                break
            echo_end = self._echo_end(text, match)
            if not echo_end and (match.end() > shown or not shown):
                return match
            begin = max(echo_end, match.start() + 1)
        return None

    def _echo_end(self, text: str, match: re.Match[str]) -> int:
        """Return the index at which the echo ends that has the match or a part of it; 0 if none."""
        echoed = 0
        for typed in self._typed:
            first = text.find(typed, echoed)
            begin = max(0, match.start() - len(typed) + 1)
            at = text.find(typed, begin, match.end() + len(typed))
            # A shell may echo twice; a program may print what was typed once more.
            if 0 <= at < match.end() and (at == first or len(typed) > len(match.group())):
                return at + len(typed)
            last = max(begin, len(text) - len(typed) + 1)
            if any(typed.startswith(text[at:]) for at in range(last, match.start() + 1)):
                return len(text)  # the rest of the echo is still to come
            if first >= 0:
                echoed = first + len(typed)
        return 0


def _printable(text: str) -> str:
    return "".join(filter(str.isprintable, text)).strip()


def _length(pattern: str) -> int:
    """Return an estimate of the length of the shortest match, in characters.

    Alternatives are added up, so it may be too large. It is too small with a comment of the
    verbose syntax before a count, and for backreferences and calls of groups.
    """
    groups = [0]
    last = 0
    for element in _ELEMENT.finditer(pattern):
        if element["comment"]:
            continue  # a count after it repeats the element before it
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
