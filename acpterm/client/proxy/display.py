"""What is known of one terminal that a tool call shows: its command, its last text, its end.

Whoever has the terminal, us or the agent, its output comes here as bytes, and what is kept of it is
bounded. `fence` is how it looks to an editor that has no terminals: a console block of Markdown.
"""

import re
from typing import Final

from acpterm.acp.notes import End
from acpterm.terminal.text import TextView

_COMMAND: Final = 200
_TICKS: Final = re.compile(r"`+")


class Display:
    """One terminal on show. `limit`: bytes of text kept; `lines`: of which so many are shown."""

    def __init__(self, command: str | None, *, limit: int, lines: int) -> None:
        self.command = command
        self.end: End | None = None
        self.known = False
        """Whether anybody has said anything of it."""
        self._limit: Final = limit
        self._lines: Final = lines
        self._text = TextView(limit)

    def feed(self, data: bytes, lost: int = 0) -> None:
        """Take the next output, before which `lost` bytes are missing."""
        self.known = True
        if lost:
            self._text.feed(b"\r\n")
        self._text.feed(data)

    def replace(self, data: bytes) -> None:
        """Take `data` for all that there is."""
        self._text = TextView(self._limit)
        self.feed(data)

    def finish(self, end: End | None) -> None:
        """Take the program's end; None is for one that runs after all."""
        self.known = True
        self.end = end
        if end is not None:
            self._text.finish()

    def fence(self) -> str:
        """Give it as a console block of Markdown: the command, the last lines, how it ended."""
        body = [] if self.command is None else [f"$ {_in_short(self.command)}"]
        shown = self._text.text()
        lines = shown.removesuffix("\n").split("\n") if shown else []
        if self._text.truncated or len(lines) > self._lines:
            body.append("…")
            # The first line is cut somewhere, unless there is but one.
            lines = lines[max(1, len(lines) - self._lines) :] if len(lines) > 1 else lines
        body += lines
        if self.end is not None:
            body += _how(self.end)
        elif not self.known:
            body.append("[a terminal of which nothing is known]")
        text = "\n".join(body)
        ticks = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
        return f"{ticks}console\n{text}\n{ticks}"


def _in_short(command: str) -> str:
    first, _, more = command.strip().partition("\n")
    return first if len(first) <= _COMMAND and not more else f"{first[: _COMMAND - 1]}…"


def _how(end: End) -> list[str]:
    if end.signal is not None:
        return [f"[ended by {end.signal}]"]
    if end.code is None:
        return ["[how it ended is not known]"]
    return [f"[exit status {end.code}]"] if end.code else []
