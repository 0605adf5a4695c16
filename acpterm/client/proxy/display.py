"""What is known of one terminal that a tool call shows: its command, its last text, its end.

Whoever has the terminal, us or the agent, its output comes here as bytes, and what is kept of it is
bounded. `fence` is how it looks to an editor that has no terminals: a console block of Markdown.

An agent may have the output of its own terminal in the raw output of the tool call instead, or as
well. It is shown once, and at its whole length: without the block the editor would show that, too.
"""

import re
from typing import Final

from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client.sanitize import escape_invisible_text
from acpterm.terminal.text.stream import TextView

_COMMAND: Final = 200
# Bytes kept of a text that comes as a whole.
RAW_BYTES: Final = 256 * 1024
_TICKS: Final = re.compile(r"`+")


class Display:
    """One terminal on show. `limit`: bytes of text kept; `lines`: of which so many are shown.

    `ours`: whether it is a terminal of the host, so that all its output comes by `feed`.
    """

    def __init__(self, command: str | None, *, limit: int, lines: int, ours: bool = False) -> None:
        self.command = command
        self.end: ExitInfo | None = None
        self._is_ours: Final = ours
        self._limit: Final = limit
        self._lines: Final = lines
        self._text = TextView(limit)
        self._is_whole = False

    def feed(self, data: bytes, lost: int = 0) -> None:
        """Take the next output, before which `lost` bytes are missing."""
        if lost:
            self._text.feed(b"\r\n")
        self._text.feed(data)

    def replace(self, data: bytes) -> None:
        """Take `data` for all that there is."""
        self._text = TextView(self._limit)
        self._is_whole = False
        self.feed(data)

    def add_raw_output(self, output: str) -> None:
        """Take the whole output from another place than the rest: only what is new is added."""
        raw = TextView(RAW_BYTES)
        raw.feed(output.encode(errors="replace"))
        raw.finish()
        whole, shown = raw.text().strip("\n"), self._text.text().strip("\n")
        if whole in shown or self._ends_alike(whole, shown):
            return
        if shown in whole:
            self._text, self._is_whole = raw, True
        else:
            self._text.feed(b"\n" * (not self._text.text().endswith("\n")))
            self._text.feed(output.encode(errors="replace"))

    def _ends_alike(self, whole: str, shown: str) -> bool:
        """Return whether two texts, either of which may be cut, have the same lines at the end."""
        # The first line of each may be a part of one.
        one, other = whole.split("\n")[1:], shown.split("\n")[1:]
        size = min(len(one), len(other), self._lines)
        return size > 0 and len(other) >= self._lines and one[-size:] == other[-size:]

    def finish(self, end: ExitInfo | None) -> None:
        """Take the program's end; None is for one that runs after all."""
        self.end = end
        if end is not None:
            self._text.finish()

    def fence(self, *, even_silent: bool = False) -> str | None:
        """Return it as a console block of Markdown: the command, the last lines, how it ended.

        None while it has no output: the block would hide what the editor shows otherwise. With
        `even_silent` the command is enough.
        """
        body = (
            [] if self.command is None else [f"$ {escape_invisible_text(_in_short(self.command))}"]
        )
        # Before anything is cut: what is hidden must not move what is seen, nor the fence.
        shown = escape_invisible_text(self._text.text())
        lines = shown.removesuffix("\n").split("\n") if shown.strip() else []
        how = [] if self.end is None else _how(self.end)
        if not (lines or (self._is_ours and how) or (even_silent and body)):
            return None
        most = len(lines) if self._is_whole else self._lines
        if self._text.truncated or len(lines) > most:
            body.append("…")
            # The first line is cut somewhere, unless there is but one.
            lines = lines[max(1, len(lines) - most) :] if len(lines) > 1 else lines
        body += lines + how
        text = "\n".join(body)
        ticks = "`" * max(3, 1 + max(map(len, _TICKS.findall(text)), default=0))
        return f"{ticks}console\n{text}\n{ticks}"


def _in_short(command: str) -> str:
    first, _, more = command.strip().partition("\n")
    return first if len(first) <= _COMMAND and not more else f"{first[: _COMMAND - 1]}…"


def _how(end: ExitInfo) -> list[str]:
    if end.signal is not None:
        return [f"[ended by {end.signal}]"]
    if end.code is None:
        return ["[how it ended is not known]"]
    return [f"[exit status {end.code}]"] if end.code else []
