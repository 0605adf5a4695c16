"""Find where each command of a shell begins and ends, by comparing the shell's marks and reports.

The letters of marks are those of OSC 133. States of the shell: *starting* until its report
`ready` (`set_ready`); then the shell either displays its prompt (`at_prompt`) or runs a command.
States of a command: *typed* (`expect`), *begun* (a mark C has arrived), and *ended* (`outcome`
returns an `Outcome`).

- To run a command, acpterm types a line, which executes a file with the command. A command has two
  or three marks C. The shell's hook (PS0 or preexec) emits the first one before the shell executes
  the typed line. The first mark has the number of the previous command. The others have the
  command's own number: the typed line emits one. With ``set -x``, the file emits another one. The
  output begins after the last of these marks. Once a C with the command's own number has arrived, a
  C with another number has no effect, since a program may print a log that contains such marks.
- A command's `Outcome.boundary` is exact if three conditions hold: the mark D with the command's
  number has arrived; the report agrees with this D; and a C with any number has arrived. Otherwise
  the boundary is unknown, and so are exit code, pipe status and directory.
- A D may be missing, for example because the command has replaced PROMPT_COMMAND, or because the
  terminal that the marks are written to was closed. Then the command counts as ended when the shell
  displays the prompt again, or when the report has arrived and no more output arrives.
- A shell that displays a prompt with the number of an earlier command has not executed the typed
  line: a key of the line was a signal to the terminal (``stty intr x``), or the shell was not
  editing a line.
- A C that arrives while no command is expected belongs to a command that the user runs in an
  attached window.

A mark is the escape sequence ``ESC ] 133 ; … BEL`` (OSC 133, "semantic prompts"). It has a letter,
the shell's nonce, the shell's pid and the number of the command. The letters are A before a prompt,
B at the end of the prompt, C before a command's output and D after the output.

Marks without the nonce are treated as output. The caller must ignore marks of another pid than the
shell's: they come from a child shell that has inherited PS0 and PS1.
"""

import re
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from acpterm.shell.report import Report
from acpterm.terminal.text.stream import Beginning, TextView

_PREFIX = b"\x1b]133;"
# No mark with the nonce is longer.
_MARK_BYTES_MAX = 160


class CommandMark(NamedTuple):
    """A mark in a shell's output, at offsets in bytes of the output."""

    letter: str  # `A`, `B`, `C` or `D`
    n: int  # the command that was the last to begin
    status: int | None  # its exit code, with D
    pid: int  # of the shell that wrote the mark
    begin: int
    end: int  # just past the last byte


class OutputPiece(NamedTuple):
    """A piece of the output between two marks."""

    data: bytes
    begin: int  # the position of its first byte


class CommandMarkScanner:
    """Splits a shell's output into marks and what is between; holds back what may be one."""

    def __init__(self, nonce: str, position: int = 0) -> None:
        self._pattern = re.compile(
            rb"\x1b\]133;([ABCD])(?:;(\d+))?;aid=%b;pid=(\d+);n=(\d+)\x07" % nonce.encode()
        )
        self._held = b""
        self._position = position

    @property
    def position(self) -> int:
        """The position just past the last byte that was fed or skipped."""
        return self._position + len(self._held)

    def feed(self, data: bytes) -> list[OutputPiece | CommandMark]:
        data = self._held + data
        pieces: list[OutputPiece | CommandMark] = []
        at = 0
        for found in self._pattern.finditer(data):
            self._add_output(pieces, data, at, found.start())
            letter, status, pid, n = found.groups()
            pieces.append(
                CommandMark(
                    letter.decode(),
                    int(n),
                    None if status is None else int(status),
                    int(pid),
                    self._position + found.start(),
                    self._position + found.end(),
                )
            )
            at = found.end()
        keep = _possible_begin(data, at)
        self._add_output(pieces, data, at, keep)
        self._held = data[keep:]
        self._position += keep
        return pieces

    def skip(self, size: int) -> list[OutputPiece | CommandMark]:
        """Skip lost bytes; return the output that was held back before them."""
        pieces = self.flush()
        self._position += size
        return pieces

    def flush(self) -> list[OutputPiece | CommandMark]:
        """Return the bytes that are held back, as output."""
        pieces: list[OutputPiece | CommandMark] = []
        self._add_output(pieces, self._held, 0, len(self._held))
        self._position += len(self._held)
        self._held = b""
        return pieces

    def _add_output(
        self, pieces: list[OutputPiece | CommandMark], data: bytes, begin: int, end: int
    ) -> None:
        if begin < end:
            pieces.append(OutputPiece(data[begin:end], self._position + begin))


def _possible_begin(data: bytes, at: int) -> int:
    """Return where an incomplete mark at the end may begin; the length if there is none."""
    begin = data.rfind(b"\x1b", max(at, len(data) - _MARK_BYTES_MAX))
    if begin < 0:
        return len(data)
    tail = data[begin:]
    if tail.startswith(_PREFIX):
        return len(data) if b"\a" in tail else begin
    return begin if _PREFIX.startswith(tail) else len(data)


class Outcome(NamedTuple):
    """How a command ended. A field is None if its value is unknown."""

    boundary: Literal["exact", "unknown"]  # whether the output's begin and end are known
    exit_code: int | None
    pipe_status: list[int] | None  # of the last pipeline
    cwd: str | None  # afterwards; None also if it no longer exists
    detail: str  # why it is unknown, or that the directory is gone
    was_executed: bool = True  # False if the typed line certainly was not


@dataclass
class _Command:
    n: int
    text: TextView
    position: int  # where the output begins; until `has_begun`, where the line was typed
    has_begun: bool = False  # any mark C has arrived
    has_own_begin: bool = False  # a mark C with the number `n` has arrived
    end: CommandMark | None = None  # the mark D with the number `n`
    prompt: CommandMark | None = None  # of a prompt although no D had arrived
    lost: int = 0  # bytes of output

    def is_skipped(self, prompt: CommandMark) -> bool:
        """Return whether a mark with another number shows that the line was not run."""
        # If it had run, it would first have changed the number. But a B also comes when a line is
        # edited, and a D shows no prompt.
        return prompt.letter != "D" and (
            prompt.letter == "A" if not self.has_begun else not self.has_own_begin
        )


@dataclass
class Tracker:
    """Tracks the commands of one shell; the current one is that of the last `expect`."""

    nonce: str
    output_bytes: int
    at_prompt: bool = False  # the mark B has arrived
    is_prompting: bool = False  # the mark A or B has arrived
    is_user_running: bool = False  # a command typed in an attached window
    _pid: int | None = None
    _command: _Command | None = None
    _scanner: CommandMarkScanner = field(init=False)

    def __post_init__(self) -> None:
        self._scanner = CommandMarkScanner(self.nonce)

    @property
    def position(self) -> int:
        return self._scanner.position

    @property
    def is_ready(self) -> bool:
        """Whether the shell has read its rc files."""
        return self._pid is not None

    def set_ready(self, report: Report) -> None:
        """Process the report `ready`. Ignore later marks with other pids than the report's."""
        self._pid = report.pid

    def expect(self, n: int) -> None:
        """Start tracking command `n`. Call this just before the command's line is typed."""
        self.at_prompt = self.is_prompting = False
        self._command = _Command(n, TextView(self.output_bytes), self.position)

    def feed(self, data: bytes) -> None:
        self._process(self._scanner.feed(data))

    def skip(self, lost: int) -> None:
        """Skip output that is no longer retained."""
        self._process(self._scanner.skip(lost))
        if self._command and not self._command.end:
            self._command.lost += lost

    def finish(self) -> None:
        """Process the end of the shell's output: the shell has ended."""
        self._process(self._scanner.flush())
        if self._command:
            self._command.text.finish()

    def _process(self, pieces: list[OutputPiece | CommandMark]) -> None:
        for piece in pieces:
            if isinstance(piece, OutputPiece):
                if self._command and not self._command.end:
                    self._command.text.feed(piece.data)
            elif self._pid in (None, piece.pid):
                self._mark(piece)

    def _mark(self, mark: CommandMark) -> None:
        command = self._command
        if mark.letter == "C":
            self.at_prompt = self.is_prompting = False
            if command is None or command.end:
                self.is_user_running = True
            elif mark.n == command.n or not command.has_own_begin:
                command.has_begun = True
                command.has_own_begin = mark.n == command.n
                command.text, command.lost = TextView(self.output_bytes), 0
                command.position = mark.end
        elif command is None or mark.n == command.n or command.is_skipped(mark):
            if mark.letter == "D":
                if command and not command.end:
                    command.end = mark
                    command.text.finish()
                return
            self.is_user_running = False
            self.is_prompting = True
            self.at_prompt = mark.letter == "B"
            if command and not command.end and not command.prompt:
                command.prompt = mark

    def outcome(self, report: Report | None, *, is_quiet: bool) -> Outcome | None:
        """Return how the current command ended; `is_quiet`: no output for some time."""
        command = self._command
        if command is None:
            raise RuntimeError("no command has begun")
        if command.end:
            return self._ended(command, command.end, report)
        if command.prompt and command.prompt.n != command.n:
            detail = "the shell did not execute the line that hands over the command"
            return _unknown(detail, was_executed=False)
        if command.prompt:
            return _unknown("the shell displayed its prompt without a mark of the command's end")
        if report and is_quiet:
            return _unknown("the shell reported the end, but its mark did not arrive")
        return None

    def _ended(self, command: _Command, end: CommandMark, report: Report | None) -> Outcome:
        if report is None:
            return _unknown("the mark of the end arrived, but no report of the shell")
        if (report.n, report.pid, report.status) != (command.n, end.pid, end.status):
            return _unknown("the shell's report differs from the mark of the end")
        if not command.has_begun:
            return _unknown("the mark of the beginning did not arrive")
        detail = "" if report.cwd_exists else f"the directory {report.cwd} no longer exists"
        cwd = report.cwd if report.cwd_exists else None
        return Outcome("exact", report.status, report.pipe_status, cwd, detail)

    @property
    def has_begun(self) -> bool:
        """Whether the shell executes the typed line."""
        return self._command is not None and self._command.has_begun

    @property
    def has_ended(self) -> bool:
        return self._command is not None and self._command.end is not None

    @property
    def output(self) -> str:
        """The retained output of the current command, as text."""
        return self._command.text.text() if self._command else ""

    @property
    def output_begin(self) -> int:
        """The bytes of text (UTF-8) dropped from the beginning of the output."""
        return self._command.text.dropped_bytes if self._command else 0

    @property
    def truncated(self) -> bool:
        """Whether the beginning of `output` was dropped, or bytes were lost."""
        return self._command is not None and (
            self._command.text.truncated or self._command.lost > 0
        )

    @property
    def beginning(self) -> Beginning | None:
        """The beginning of the output if it is truncated, and known."""
        command = self._command
        return command.text.beginning() if command and self.truncated and not command.lost else None

    @property
    def lost(self) -> int:
        """The bytes of the current command's output that were skipped by `skip`."""
        return self._command.lost if self._command else 0

    @property
    def span(self) -> tuple[int, int]:
        """The positions at which the current command's output begins and ends, so far."""
        if self._command is None:
            return self.position, self.position
        end = self._command.end
        return self._command.position, end.begin if end else self.position


def _unknown(reason: str, *, was_executed: bool = True) -> Outcome:
    return Outcome("unknown", None, None, None, reason, was_executed)
