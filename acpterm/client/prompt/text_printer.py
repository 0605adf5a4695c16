"""For a person: the agent's message as it comes, its tool calls, what its terminals print, diffs.

A call has a line when it begins and a line when it is over, with its state; between them is what
its terminals print, a line at a time, indented. With colours, programs keep theirs. What comes from
the agent and its programs is made safe first (`plain`). Notices go to stderr.
"""

import codecs
import difflib
from collections.abc import Callable
from typing import Final

import click
from msgspec import Raw

from acpterm.acp import Diff
from acpterm.acp.terminal_updates import ExitInfo
from acpterm.client.prompt.tool_calls import ToolCallState
from acpterm.client.sanitize import keep_sgr, one_line, strip_controls

_INDENT: Final = "  │ "
# A line of output that is not over is printed all the same when it has so many characters.
_LONGEST: Final = 8 * 1024
# Lines that are shown of a result that is text.
_RESULT: Final = 10
# Lines before times lines after from which on a diff takes seconds to find.
_COSTLY: Final = 1_000_000
# Lines that are shown of one diff.
_DIFF: Final = 400
_MARKS: Final = {"completed": ("✓", "green"), "failed": ("✗", "red")}
_PLAN: Final = {"completed": "☑", "in_progress": "▸", "pending": "☐"}


class _Output:
    """What a terminal has printed of a line that is not over."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def take(self, data: bytes, *, final: bool = False) -> list[str]:
        """Give the lines that are over by now."""
        *lines, self._rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        if self._rest and (final or len(self._rest) > _LONGEST):
            lines.append(self._rest)
            self._rest = ""
        return lines


class TextPrinter:
    """See `printing.Printer`. `write` takes bytes for stdout, `complain` for stderr."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        complain: Callable[[bytes], None],
        *,
        colours: bool,
        quiet: bool,
    ) -> None:
        self._write = write
        self._complain = complain
        self._colours = colours
        self._quiet = quiet
        self._at_line_start = True
        self._outputs: dict[str, _Output] = {}
        self._last: str | None = None
        self._names: dict[str, str] = {}
        self._plan: list[tuple[str, str]] = []

    def session(self, identifier: str) -> None:
        """Tell it to a person who may want to go on with it."""
        if not self._quiet:
            self.notice(f"session {identifier}")

    def update(self, update: Raw) -> None:
        """Print nothing: what is to be seen of it comes by the others."""

    def message(self, text: str) -> None:
        """Print it, without an end of line of its own."""
        if shown := strip_controls(text):
            self._put(shown)

    def call(self, call: ToolCallState) -> None:
        """Print its first line, or its last."""
        for terminal in call.terminals:
            self._names[terminal] = call.name
        if not call.started:
            call.started = True
            self._line(self._style(f"▸ {one_line(call.name)}", bold=True))
        if call.status in _MARKS and not call.finished:
            call.finished = True
            self._diffs(call)
            if not call.terminals and not call.diffs:
                self._result(call.texts)
            mark, colour = _MARKS[call.status]
            self._line(self._style(f"{mark} {one_line(call.name)}", fg=colour))

    def asked(self, call: ToolCallState) -> None:
        """Print what the question is about: the call, and what it would change."""
        self.call(call)
        self._diffs(call)

    def plan(self, entries: list[tuple[str, str]]) -> None:
        """Print what is new in it."""
        for entry in entries:
            if entry not in self._plan and entry[0]:
                content, status = entry
                self._line(f"{_PLAN.get(status, '☐')} {one_line(content)}")
        self._plan = entries

    def output(self, terminal: str, data: bytes, lost: int) -> None:
        """Print the lines that are over."""
        if lost:
            self._program(terminal, [f"… {lost} bytes are not shown"])
        output = self._outputs.setdefault(terminal, _Output())
        self._program(terminal, output.take(data))

    def ended(self, terminal: str, end: ExitInfo) -> None:
        """Print what is left, and how it ended, unless that was well."""
        output = self._outputs.pop(terminal, None)
        if output is not None:
            self._program(terminal, output.take(b"", final=True))
        if end.signal is not None:
            self._program(terminal, [f"[ended by {end.signal}]"])
        elif end.code:
            self._program(terminal, [f"[exit status {end.code}]"])
        self._names.pop(terminal, None)

    def notice(self, text: str) -> None:
        """Print it on stderr."""
        self._fresh()
        self._complain(f"acpterm: {strip_controls(text)}\n".encode())

    def end(self, stop_reason: str | None, status: int, error: str | None) -> None:
        """Print what is left of terminals that have not ended; say what was wrong."""
        for terminal, output in self._outputs.items():
            self._program(terminal, output.take(b"", final=True))
        self._fresh()
        del status
        if error is not None:
            self.notice(error)
        elif stop_reason not in (None, "end_turn", "cancelled"):
            self.notice(f"the turn ended with {stop_reason}")

    def _program(self, terminal: str, lines: list[str]) -> None:
        if lines and len(self._outputs) > 1 and self._last != terminal:
            name = one_line(self._names.get(terminal, terminal))
            self._line(self._style(f"  ┌ {name}", dim=True))
        for line in lines:
            self._last = terminal
            shown = (
                keep_sgr(line)
                if self._colours
                else strip_controls(line.rstrip("\r").split("\r")[-1])
            )
            self._line(self._style(_INDENT, dim=True) + shown)

    def _result(self, texts: list[str]) -> None:
        """Print the beginning of what a call without a terminal has come to."""
        lines = strip_controls("\n".join(texts)).rstrip("\n").splitlines()
        for line in lines[:_RESULT]:
            self._line(self._style(f"{_INDENT}{line}", dim=True))
        if len(lines) > _RESULT:
            self._line(self._style(f"{_INDENT}… {len(lines) - _RESULT} more lines", dim=True))

    def _diffs(self, call: ToolCallState) -> None:
        for diff in call.diffs:
            if diff not in call.shown:
                call.shown.append(diff)
                self._diff(diff)

    def _diff(self, diff: Diff) -> None:
        before = (diff.old_text or "").splitlines()
        after = diff.new_text.splitlines()
        path = one_line(diff.path)
        name = "/dev/null" if diff.old_text is None else path
        if len(before) * len(after) > _COSTLY:
            self._line(f"  {name}: {len(before)} lines become {len(after)}")
            return
        found = difflib.unified_diff(before, after, name, path, lineterm="")
        lines = list(found)
        for line in lines[:_DIFF]:
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
            self._line(self._style(f"  {strip_controls(line)}", fg=colour))
        if len(lines) > _DIFF:
            self._line(f"  … {len(lines) - _DIFF} more lines")

    def _style(self, text: str, **how: object) -> str:
        return click.style(text, **how) if self._colours else text  # type: ignore[arg-type]  # it takes its own keywords

    def _line(self, text: str) -> None:
        self._fresh()
        self._put(f"{text}\n")

    def _fresh(self) -> None:
        """Begin a line, if the last one is not over."""
        if not self._at_line_start:
            self._put("\n")

    def _put(self, text: str) -> None:
        self._at_line_start = text.endswith("\n")
        self._write(text.encode(errors="replace"))
