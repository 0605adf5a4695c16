"""Renders a terminal that is embedded in a tool call as text: its command, last output and exit.

An agent may report the output of its own terminal in the terminal's updates, in the tool call's
`rawOutput`, or in both: then it is rendered once. Only the last lines are rendered. A `rawOutput`,
and an agent's own terminal that has ended, are rendered in full: without the proxy, the editor
would show that much.
"""

import re
from typing import Final

from acpterm.acp.terminal_updates import ProgramExit
from acpterm.runtime.sanitize import escape_invisible_text
from acpterm.terminal.text.stream import TextView

_COMMAND_CHARS_MAX: Final = 200
# Bytes kept of the output of a terminal of the agent's own.
AGENT_OUTPUT_BYTES: Final = 256 * 1024
_BACKTICKS: Final = re.compile(r"`+")


class Display:
    """One terminal that is shown as text: its last `lines` lines, of `limit` bytes that are kept.

    `ours`: the host runs the terminal. `bare`: the editor shows only the beginning of a text; then
    all lines that are kept are shown, without the command, which is in the call's title.
    """

    def __init__(
        self, command: str | None, *, limit: int, lines: int, ours: bool = False, bare: bool = False
    ) -> None:
        self.command = command
        self.end: ProgramExit | None = None
        self._is_ours: Final = ours
        self._is_bare: Final = bare
        self._limit: Final = limit if ours else AGENT_OUTPUT_BYTES
        self._lines: Final = lines
        self._text = TextView(self._limit)
        # Whether the text is a raw output, which is shown in full.
        self._shows_all = False

    def feed(self, data: bytes, lost: int = 0) -> None:
        if lost:
            self._text.feed(b"\r\n")
        self._text.feed(data)

    def replace(self, data: bytes) -> None:
        self._text = TextView(self._limit)
        self._shows_all = False
        self.feed(data)

    def add_raw_output(self, output: str) -> None:
        """Add the tool call's `rawOutput` unless its end is shown already.

        If it contains all of the kept text, it replaces that, and is shown in full.
        """
        raw = TextView(AGENT_OUTPUT_BYTES)
        raw.feed(output.encode(errors="replace"))
        raw.finish()
        complete, shown = raw.text().strip("\n"), self._text.text().strip("\n")
        if complete in shown or self._ends_alike(complete, shown):
            return
        if shown in complete:
            self._text, self._shows_all = raw, True
        else:
            self._text.feed(b"\n" * (not self._text.text().endswith("\n")))
            self._text.feed(output.encode(errors="replace"))

    def _ends_alike(self, complete: str, shown: str) -> bool:
        """Return whether both texts end with the same lines, as many as are shown."""
        # The first line of each may be incomplete.
        one, other = complete.split("\n")[1:], shown.split("\n")[1:]
        size = min(len(one), len(other), self._lines)
        return size > 0 and len(other) >= self._lines and one[-size:] == other[-size:]

    def finish(self, end: ProgramExit | None) -> None:
        """Set the exit of the program; None means that it still runs."""
        self.end = end
        if end is not None:
            self._text.finish()

    def fence(self, *, even_silent: bool = False) -> str | None:
        """Return a console block of Markdown: the command, the last lines and the exit status.

        Return None if there is nothing to show but the command, unless `even_silent`.
        """
        body = []
        if self.command is not None and not self._is_bare:
            body.append(f"$ {escape_invisible_text(_shorten(self.command))}")
        # Escape before cutting: hidden characters must not shift the visible text or the fence.
        shown = escape_invisible_text(self._text.text())
        lines = shown.removesuffix("\n").split("\n") if shown.strip() else []
        ending = [] if self.end is None else _ending(self.end)
        if not (lines or (self._is_ours and ending) or (even_silent and body)):
            return None
        is_agents = self.end is not None and not self._is_ours
        shows_all = self._shows_all or self._is_bare or is_agents
        max_lines = len(lines) if shows_all else self._lines
        if self._text.truncated or len(lines) > max_lines:
            body.append("…")
            # The first line may lack its beginning: drop it unless it is the only one.
            lines = lines[max(1, len(lines) - max_lines) :] if len(lines) > 1 else lines
        body += lines + ending
        # avante.nvim leaves out a fence only if it names no language.
        return fenced("\n".join(body), "" if self._is_bare else "console")


def fenced(text: str, language: str = "") -> str:
    """Return text as a fenced code block of Markdown, which no backticks in the text can end."""
    fence = "`" * max(3, 1 + max(map(len, _BACKTICKS.findall(text)), default=0))
    return f"{fence}{language}\n{text}\n{fence}"


def _shorten(command: str) -> str:
    first, _, rest = command.strip().partition("\n")
    if len(first) <= _COMMAND_CHARS_MAX and not rest:
        return first
    return f"{first[: _COMMAND_CHARS_MAX - 1]}…"


def _ending(end: ProgramExit) -> list[str]:
    if end.signal is not None:
        return [f"[ended by {end.signal}]"]
    if end.code is None:
        return ["[how it ended is not known]"]
    return [f"[exit status {end.code}]"] if end.code else []
