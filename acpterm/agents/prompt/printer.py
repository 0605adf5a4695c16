"""The printers of a turn: the base class, which prints nothing, and the one for programs.

`JsonPrinter` prints one JSON object per line: the agent's updates unchanged, and other events.

| `event` | other members |
| --- | --- |
| `session` | `sessionId` |
| `update` | `update`: the member `update` of a `session/update`, as the agent sent it |
| `output` | `terminalId`, `data`: text with control sequences; `lost`: bytes lost before, if any |
| `exit` | `terminalId`, `exitCode`, `signal`: one of the two is null, or both if unknown |
| `notice` | `text`: a notice for the user, usually about permissions |
| `end` | `stopReason` (null if the turn did not end), `status`, `error` (null if there was none) |

`TextPrinter` prints a turn for a human reader: messages, tool calls, terminal output and diffs.

For a tool call, a line is printed when the call starts, and a line with its status when the call
ends. The output of the call's terminals is printed in between, one line at a time and indented,
with the colours of the output unless colours are disabled. Text from the agent and its programs is
sanitized first (`sanitize`). Notices go to stderr.
"""

import codecs
import difflib
from collections.abc import Callable
from typing import Any, Final

import click
import msgspec
from msgspec import Raw

from acpterm.acp.session import Diff
from acpterm.acp.terminal_updates import ProgramExit
from acpterm.agents.prompt.tool_calls import CALLS_MAX, ToolCallState
from acpterm.runtime.bounded_dict import BoundedDict
from acpterm.runtime.sanitize import escape_json, keep_sgr, one_line, strip_controls

_encoder: Final = msgspec.json.Encoder()

_INDENT: Final = "  │ "
# An incomplete line of output is printed once it has more characters than this.
_LINE_CHARS_MAX: Final = 8 * 1024
# Maximum number of a call's printed lines that are remembered.
_PRINTED_LINES_MAX: Final = 1000
# Maximum number of lines printed of a tool call's result, if the result is text.
_RESULT_LINES_MAX: Final = 10
# Maximum of the lines of the old text times the lines of the new text. Above it, computing a diff
# takes seconds, and no diff is printed.
_DIFF_COST_MAX: Final = 1_000_000
# Maximum number of lines printed of one diff.
_DIFF_LINES_MAX: Final = 400
_MARKS: Final = {"completed": ("✓", "green"), "failed": ("✗", "red")}
_PLAN: Final = {"completed": "☑", "in_progress": "▸", "pending": "☐"}


class _LineBuffer:
    """Splits output into lines; an incomplete line of more than `_LINE_CHARS_MAX` is one too."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._rest = ""

    def feed(self, data: bytes, *, final: bool = False) -> list[str]:
        """Return the lines that `data` completes; with `final`, also the incomplete last line."""
        *lines, self._rest = (self._rest + self._decoder.decode(data, final)).split("\n")
        if self._rest and (final or len(self._rest) > _LINE_CHARS_MAX):
            lines.append(self._rest)
            self._rest = ""
        return lines


class TurnPrinter:
    """Prints the events of a turn as they happen. No method blocks."""

    def session(self, identifier: str) -> None:
        """Print that the session is open."""

    def update(self, update: Raw) -> None:
        """Print a `session/update` of any kind."""

    def message(self, text: str) -> None:
        """Print the next piece of the agent's message."""

    def begin(self, call: ToolCallState) -> None:
        """Print that a tool call has begun, before the output of its terminals."""

    def tool_call(self, call: ToolCallState) -> None:
        """Print a tool call that has begun or changed; called after each of its updates."""

    def before_question(self, call: ToolCallState) -> None:
        """Print a tool call before the user is asked whether to allow it."""

    def plan(self, entries: list[tuple[str, str]]) -> None:
        """Print the agent's plan: the content and the status of each entry."""

    def output(self, terminal: str, data: bytes, lost: int) -> None:
        """Print output of a terminal, before which `lost` bytes are missing."""

    def exited(self, terminal: str, end: ProgramExit) -> None:
        """Print the exit of a terminal's program."""

    def notice(self, text: str) -> None:
        """Print a notice for the user."""

    def agent_notice(self, severity: str, title: str, description: str) -> None:
        """Print a notice of the agent for the user; `description` may be empty."""

    def end(self, stop_reason: str | None, status: int, error: str | None) -> None:
        """Print the end of the run."""


class TextPrinter(TurnPrinter):
    """Prints text for a human reader; `quiet` leaves out the session's id."""

    def __init__(
        self,
        write: Callable[[bytes], None],
        write_err: Callable[[bytes], None],
        *,
        colours: bool,
        quiet: bool,
    ) -> None:
        self._write = write
        self._write_err = write_err
        self._colours = colours
        self._quiet = quiet
        self._at_line_start = True
        self._outputs: dict[str, _LineBuffer] = {}
        self._last: str | None = None
        self._names: dict[str, str] = {}
        # The lines that the terminals of each call have printed, by the terminal and by the call.
        self._printed: BoundedDict[str, set[str]] = BoundedDict(CALLS_MAX)
        self._of_call: BoundedDict[str, set[str]] = BoundedDict(CALLS_MAX)
        self._plan: list[tuple[str, str]] = []

    def session(self, identifier: str) -> None:
        if not self._quiet:
            self.notice(f"session {identifier}")

    def message(self, text: str) -> None:
        if sanitized := strip_controls(text):
            self._put(sanitized)

    def begin(self, call: ToolCallState) -> None:
        for terminal in call.terminals:
            self._names[terminal] = call.name
            self._printed[terminal] = self._of_call.setdefault(call.id, set())
        if not call.start_printed:
            call.start_printed = True
            self._line(self._style(f"▸ {one_line(call.name)}", bold=True))

    def tool_call(self, call: ToolCallState) -> None:
        self.begin(call)
        if call.status in _MARKS and not call.end_printed:
            call.end_printed = True
            self._diffs(call)
            if not call.terminals and not call.diffs:
                self._result(call.texts, self._of_call.get(call.id, set()))
            mark, colour = _MARKS[call.status]
            self._line(self._style(f"{mark} {one_line(call.name)}", fg=colour))

    def before_question(self, call: ToolCallState) -> None:
        self.tool_call(call)
        self._diffs(call)

    def plan(self, entries: list[tuple[str, str]]) -> None:
        for entry in entries:
            if entry not in self._plan and entry[0]:
                content, status = entry
                self._line(f"{_PLAN.get(status, '☐')} {one_line(content)}")
        self._plan = entries

    def output(self, terminal: str, data: bytes, lost: int) -> None:
        if lost:
            self._program_output(terminal, [f"… {lost} bytes are not shown"])
        output = self._outputs.setdefault(terminal, _LineBuffer())
        self._program_output(terminal, output.feed(data))

    def exited(self, terminal: str, end: ProgramExit) -> None:
        output = self._outputs.pop(terminal, None)
        if output is not None:
            self._program_output(terminal, output.feed(b"", final=True))
        if end.signal is not None:
            self._program_output(terminal, [f"[ended by {end.signal}]"])
        elif end.code:
            self._program_output(terminal, [f"[exit status {end.code}]"])
        self._names.pop(terminal, None)

    def notice(self, text: str) -> None:
        self._start_line()
        self._write_err(f"acpterm: {strip_controls(text)}\n".encode())

    def agent_notice(self, severity: str, title: str, description: str) -> None:
        about = f"{title}: {description}" if description else title
        self.notice(f"the agent's {one_line(severity)}: {about}")

    def end(self, stop_reason: str | None, status: int, error: str | None) -> None:
        for terminal, output in self._outputs.items():
            self._program_output(terminal, output.feed(b"", final=True))
        self._start_line()
        del status
        if error is not None:
            self.notice(error)
        elif stop_reason not in (None, "end_turn", "cancelled"):
            self.notice(f"the turn ended with {stop_reason}")

    def _program_output(self, terminal: str, lines: list[str]) -> None:
        printed = self._printed.get(terminal, set())
        if lines and len(self._outputs) > 1 and self._last != terminal:
            name = one_line(self._names.get(terminal, terminal))
            self._line(self._style(f"  ┌ {name}", dim=True))
        for line in lines:
            self._last = terminal
            sanitized = (
                keep_sgr(line)
                if self._colours
                else strip_controls(line.rstrip("\r").split("\r")[-1])
            )
            self._line(self._style(_INDENT, dim=True) + sanitized)
            if len(printed) < _PRINTED_LINES_MAX:
                printed.add(strip_controls(line).strip())

    def _result(self, texts: list[str], printed: set[str]) -> None:
        """Print the first lines of a tool call's text.

        But not the lines in `printed`: oh-my-pi replaces a terminal by its output at the end.
        """
        lines = strip_controls("\n".join(texts)).rstrip("\n").splitlines()
        lines = [line for line in lines if line.strip() not in printed]
        for line in lines[:_RESULT_LINES_MAX]:
            self._line(self._style(f"{_INDENT}{line}", dim=True))
        if len(lines) > _RESULT_LINES_MAX:
            self._line(
                self._style(f"{_INDENT}… {len(lines) - _RESULT_LINES_MAX} more lines", dim=True)
            )

    def _diffs(self, call: ToolCallState) -> None:
        for diff in call.diffs:
            if diff not in call.printed_diffs:
                call.printed_diffs.append(diff)
                self._diff(diff)

    def _diff(self, diff: Diff) -> None:
        before = (diff.old_text or "").splitlines()
        after = diff.new_text.splitlines()
        path = one_line(diff.path)
        name = "/dev/null" if diff.old_text is None else path
        if len(before) * len(after) > _DIFF_COST_MAX:
            self._line(f"  {name}: {len(before)} lines become {len(after)}")
            return
        lines = list(difflib.unified_diff(before, after, name, path, lineterm=""))
        for line in lines[:_DIFF_LINES_MAX]:
            colour = {"+": "green", "-": "red", "@": "cyan"}.get(line[:1])
            self._line(self._style(f"  {strip_controls(line)}", fg=colour))
        if len(lines) > _DIFF_LINES_MAX:
            self._line(f"  … {len(lines) - _DIFF_LINES_MAX} more lines")

    def _style(self, text: str, **style: object) -> str:
        return click.style(text, **style) if self._colours else text  # type: ignore[arg-type]  # it takes its own keywords

    def _line(self, text: str) -> None:
        self._start_line()
        self._put(f"{text}\n")

    def _start_line(self) -> None:
        if not self._at_line_start:
            self._put("\n")

    def _put(self, text: str) -> None:
        self._at_line_start = text.endswith("\n")
        self._write(text.encode(errors="replace"))


class JsonPrinter(TurnPrinter):
    """Prints JSON objects; the methods without effect print what `update` has printed."""

    def __init__(self, write: Callable[[bytes], None]) -> None:
        self._write = write
        self._decoders: dict[str, codecs.IncrementalDecoder] = {}

    def session(self, identifier: str) -> None:
        self._event("session", sessionId=identifier)

    def update(self, update: Raw) -> None:
        self._event("update", update=update)

    def output(self, terminal: str, data: bytes, lost: int) -> None:
        if terminal not in self._decoders:
            self._decoders[terminal] = codecs.getincrementaldecoder("utf-8")("replace")
        text = self._decoders[terminal].decode(data)
        if text or lost:
            missing = {"lost": lost} if lost else {}
            self._event("output", terminalId=terminal, data=text, **missing)

    def exited(self, terminal: str, end: ProgramExit) -> None:
        decoder = self._decoders.pop(terminal, None)
        if decoder is not None and (rest := decoder.decode(b"", final=True)):
            self._event("output", terminalId=terminal, data=rest)
        self._event("exit", terminalId=terminal, exitCode=end.code, signal=end.signal)

    def notice(self, text: str) -> None:
        self._event("notice", text=text)

    def end(self, stop_reason: str | None, status: int, error: str | None) -> None:
        self._event("end", stopReason=stop_reason, status=status, error=error)

    def _event(self, name: str, **members: Any) -> None:
        # The agent's JSON may contain line feeds between tokens.
        line = _encoder.encode({"event": name, **members}).replace(b"\n", b" ")
        # Control characters in the agent's strings must not reach the user's terminal.
        self._write(escape_json(line.decode(errors="replace")).encode() + b"\n")
