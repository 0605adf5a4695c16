"""The boundaries of commands: what the marks and the records of a shell say together.

States of the shell: *starting* until its record `ready` (`set_ready`); then it displays its prompt
(`at_prompt`), or runs something. States of a command: *typed* (`begin`), *begun* at a mark C, and
*ended* (`outcome` returns an `Outcome`).

- Output begins after the last C before the end. PS0 and preexec emit a C before the typed line is
  executed, with the number of the command before; the line emits another, with the command's own
  number, after which a C with another number has no effect: a program may print a log that contains
  it.
- The boundary is exact if the mark D with the command's number arrived, if the record agrees with
  it, and if a C was seen. Else it is unknown, and so are exit code, pipe status and directory.
- A command without D ends when its shell displays the prompt again (PROMPT_COMMAND may have been
  replaced), or when its record is there and no output arrives any more (the terminal of the marks
  may have been closed).
- A shell that displays a prompt with an earlier number has not executed the line: a key of it was a
  signal for the terminal (``stty intr x``), or the shell was not editing a line.
- A C without `begin` belongs to a command that the user runs in an attached window.
"""

from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from acpterm.shell.marks import Mark, MarkScanner, Output
from acpterm.shell.record import Record
from acpterm.terminal.text.stream import TextView


class Outcome(NamedTuple):
    """The end of a command, as far as it is known."""

    boundary: Literal["exact", "unknown"]
    exit_code: int | None
    pipe_status: list[int] | None
    cwd: str | None
    detail: str
    """Why the boundary is unknown, or what is remarkable."""
    was_executed: bool = True
    """False if the shell certainly has not executed the command, since it got another line."""


@dataclass
class _Command:
    n: int
    text: TextView
    position: int
    """Where the output begins, if `has_begun`; before, where the line was typed."""
    has_begun: bool = False
    has_own_begin: bool = False
    end: Mark | None = None
    prompt: Mark | None = None
    """The prompt that was displayed although no D had arrived."""
    lost: int = 0

    def is_skipped(self, prompt: Mark) -> bool:
        """Return whether a prompt means that the line's first part, which sets `n`, did not run.

        Programs cannot run in that state. The end of a prompt (B) is also displayed again while a
        line is edited.
        """
        return prompt.letter != "D" and (
            prompt.letter == "A" if not self.has_begun else not self.has_own_begin
        )


@dataclass
class Tracker:
    """Tracks the commands of one shell.

    `output_bytes` is the maximum length of a command's retained text.
    """

    nonce: str
    output_bytes: int
    at_prompt: bool = False
    """Whether the shell displays its prompt: the end of the prompt has arrived."""
    is_prompting: bool = False
    """Whether the shell computes or displays its prompt."""
    is_user_running: bool = False
    """Whether the user runs a command in the shell."""
    _pid: int | None = None
    _command: _Command | None = None
    _scanner: MarkScanner = field(init=False)

    def __post_init__(self) -> None:
        self._scanner = MarkScanner(self.nonce)

    @property
    def position(self) -> int:
        """The position up to which the shell's output was fed."""
        return self._scanner.position

    @property
    def is_ready(self) -> bool:
        """Whether the shell has read its rc files."""
        return self._pid is not None

    def set_ready(self, record: Record) -> None:
        """Process the shell's record `ready`."""
        self._pid = record.pid

    def begin(self, n: int) -> None:
        """Begin command `n`, whose line is typed next."""
        self.at_prompt = self.is_prompting = False
        self._command = _Command(n, TextView(self.output_bytes), self.position)

    def feed(self, data: bytes) -> None:
        """Process `data`, the shell's next output."""
        self._process(self._scanner.feed(data))

    def skip(self, lost: int) -> None:
        """Skip `lost` bytes of output, which are no longer retained."""
        self._process(self._scanner.skip(lost))
        if self._command:
            self._command.lost += lost

    def finish(self) -> None:
        """End the output: the shell has ended."""
        self._process(self._scanner.flush())
        if self._command:
            self._command.text.finish()

    def _process(self, pieces: list[Output | Mark]) -> None:
        for piece in pieces:
            if isinstance(piece, Output):
                if self._command and not self._command.end:
                    self._command.text.feed(piece.data)
            elif self._pid in (None, piece.pid):
                self._mark(piece)

    def _mark(self, mark: Mark) -> None:
        command = self._command
        if mark.letter == "C":
            self.at_prompt = self.is_prompting = False
            if command is None or command.end:
                self.is_user_running = True
            elif mark.n == command.n or not command.has_own_begin:
                command.has_begun = True
                command.has_own_begin = mark.n == command.n
                command.text = TextView(self.output_bytes)
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

    def outcome(self, record: Record | None, *, is_quiet: bool) -> Outcome | None:
        """Return the end of the current command; None if it runs.

        `record` is the command's record, if there is one now. `is_quiet` says that no output has
        arrived for some time.
        """
        command = self._command
        if command is None:
            raise RuntimeError("no command has begun")
        if command.end:
            return self._ended(command, command.end, record)
        if command.prompt and command.prompt.n != command.n:
            detail = "the shell did not execute the line that hands over the command"
            return _unknown(detail, was_executed=False)
        if command.prompt:
            return _unknown("the shell displayed its prompt without a mark of the command's end")
        if record and is_quiet:
            return _unknown("the shell reported the end, but its mark did not arrive")
        return None

    def _ended(self, command: _Command, end: Mark, record: Record | None) -> Outcome:
        if record is None:
            return _unknown("the mark of the end arrived, but no report of the shell")
        if (record.n, record.pid, record.status) != (command.n, end.pid, end.status):
            return _unknown("the shell's report differs from the mark of the end")
        if not command.has_begun:
            return _unknown("the mark of the beginning did not arrive")
        detail = "" if record.cwd_exists else f"the directory {record.cwd} no longer exists"
        cwd = record.cwd if record.cwd_exists else None
        return Outcome("exact", record.status, record.pipe_status, cwd, detail)

    @property
    def has_begun(self) -> bool:
        """Whether the shell has begun to execute the current command."""
        return self._command is not None and self._command.has_begun

    @property
    def has_ended(self) -> bool:
        """Whether the mark of the current command's end has arrived."""
        return self._command is not None and self._command.end is not None

    @property
    def output(self) -> str:
        """The text of the current or the last command, up to now."""
        return self._command.text.text() if self._command else ""

    @property
    def output_begin(self) -> int:
        """The bytes (UTF-8) of text before `output`, which are no longer retained."""
        return self._command.text.dropped_bytes if self._command else 0

    @property
    def truncated(self) -> bool:
        """Whether the beginning of that text is no longer retained."""
        return self._command is not None and (
            self._command.text.truncated or self._command.lost > 0
        )

    @property
    def lost(self) -> int:
        """The number of bytes of the current or the last command that were lost."""
        return self._command.lost if self._command else 0

    @property
    def span(self) -> tuple[int, int]:
        """The positions at which the output of that command begins and ends, up to now."""
        if self._command is None:
            return self.position, self.position
        end = self._command.end
        return self._command.position, end.begin if end else self.position


def _unknown(reason: str, *, was_executed: bool = True) -> Outcome:
    return Outcome("unknown", None, None, None, reason, was_executed)
