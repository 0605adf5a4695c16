"""The values that the methods of the API return.

A position is an offset in bytes from the beginning of a terminal's output. `position` is the
position at which the next read continues. `lost` is the number of bytes that are missing because
they were no longer retained.
"""

import re
import signal as signals
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

from acpterm.acp.agent_meta import BackgroundProcess

Reason: TypeAlias = Literal["match", "idle", "input", "exit", "timeout"]
Level: TypeAlias = Literal["safe", "unknown", "dangerous"]
Decision: TypeAlias = Literal["allow", "ask", "deny"]
ShellState: TypeAlias = Literal["done", "running", "waiting_for_input", "shell_ended"]


class Exit(Struct, frozen=True):
    """How a terminal's program ended.

    Either `code` or `signal` (such as ``SIGTERM``) is set, or neither if the status is unknown.
    `ended_by` says what ended the program: ``exited`` if it ended by itself, ``agent``, ``user``,
    ``timeout``, ``idle``, ``limit`` (then `limit` is the name of the limit), ``disconnect``, or
    ``lost`` if the status is unknown. On a cluster, `ended_by` may also be another word, such as
    ``time_limit`` (docs/protocol.md lists all). It is None if the host does not report the cause.
    `wall_seconds` is the run time; 0 if the host does not report it. `background` are the processes
    that the program has left running, those with listening ports first, 16 at most.
    """

    code: int | None
    signal: str | None
    ended_by: str | None = None
    wall_seconds: float = 0.0
    limit: str | None = None
    background: tuple[BackgroundProcess, ...] = ()

    @property
    def shell_status(self) -> int:
        """The exit status as a shell reports it: 128 + N after signal N, 255 if unknown."""
        if self.code is not None:
            return self.code
        try:
            return 128 + signals.Signals[self.signal or ""]
        except KeyError:
            return 255


class Stopped(Struct, frozen=True):
    """A program that the system has stopped, because it used the terminal from the background.

    `command` is the program's name, `why` says what it wants, and `hint` what to do.
    """

    pid: int
    command: str
    why: str
    hint: str


class Output(Struct, frozen=True):
    """Output as text, from `Terminal.read`.

    `exit` is set once the program has exited. `waiting_for_input` says whether the program waits
    for input; None if it has exited, or if that cannot be determined. `waiting_program` says which
    program waits, such as ``vim waits on COMMIT_EDITMSG``; None if that is unknown. `stopped` is a
    program that is stopped.
    """

    text: str
    position: int
    lost: int
    exit: Exit | None = None
    waiting_for_input: bool | None = None
    stopped: Stopped | None = None
    waiting_program: str | None = None


class RawOutput(Struct, frozen=True):
    """Output as bytes with all escape sequences, from `Terminal.read_raw`."""

    data: bytes
    position: int
    lost: int
    exit: Exit | None = None
    waiting_for_input: bool | None = None
    stopped: Stopped | None = None
    waiting_program: str | None = None


class RetainedOutput(Struct, frozen=True):
    """All retained output as text, from `Terminal.output`.

    `truncated` is true if the beginning of the output is no longer retained. For an agent,
    `beginning` is then the text of the first 8 KiB, and `total_lines` the number of all line ends;
    None if they are not known.
    """

    text: str
    truncated: bool
    position: int
    exit: Exit | None = None
    beginning: str | None = None
    total_lines: int | None = None


class Screen(Struct, frozen=True):
    """The screen of a terminal, from `Terminal.screen`.

    `rows` are the rows as text, without blanks at their ends; `styled_rows` have colours as escape
    sequences. `lines` is the number of rows. `cursor` is a column and a row, counted from 0.
    `alternate` is true while a full-screen program uses the alternate screen. `application_cursor`
    (of the arrow keys) and `bracketed_paste` are modes that the program may turn on. `title` is the
    window title; None if the program has set none.
    """

    rows: list[str]
    styled_rows: list[str]
    cols: int
    lines: int
    cursor: tuple[int, int]
    cursor_visible: bool
    alternate: bool
    application_cursor: bool
    bracketed_paste: bool
    title: str | None
    position: int

    def text(self) -> str:
        """Return the rows as one text, without blank rows at the end."""
        return "\n".join(self.rows).rstrip("\n")

    @property
    def is_full_screen(self) -> bool:
        """Whether a program draws the whole screen: on the alternate screen, or as `top` does."""
        return self.alternate or (self.application_cursor and not self.cursor_visible)

    @property
    def hash(self) -> str:
        """A hexadecimal digest of contents, colours, size and cursor."""
        shown = (self.styled_rows, self.cols, self.lines, self.cursor, self.cursor_visible)
        return sha256(msgspec.json.encode(shown)).hexdigest()[:16]


class Waited(Struct, frozen=True):
    """Why `Terminal.wait_for` has returned, and the output from its argument `since` on.

    `reason` says which condition ended the wait: ``match``, ``idle``, ``input``, ``exit`` or
    ``timeout``. `match` is the match in `text`; None if `reason` is not ``match``.
    """

    reason: Reason
    match: re.Match[str] | None
    text: str
    position: int
    lost: int
    exit: Exit | None = None
    waiting_for_input: bool | None = None


class CommandPart(Struct, frozen=True):
    """One command of a line: its words, its level, and the reason why it is not safe.

    `reason` is empty for a safe command. If `words` is empty, the part stands for the whole line.
    """

    words: list[str]
    level: Level
    reason: str


class CommandCheck(Struct, frozen=True):
    """The judgement on a command, from `Client.check`.

    `decision` says whether the command of an agent would run, whether the user would be asked, or
    whether it would be refused. `rule` is the rule that has decided; None if no rule has. `reason`
    says why the command is not allowed or not safe; None if there is no reason. `parts` are all
    commands of the command line, even those that another program would execute. `profile` is the
    name of the profile that was applied.
    """

    level: Level
    decision: Decision
    reason: str | None
    rule: str | None
    parts: list[CommandPart]
    profile: str


class Completed(Struct, frozen=True, kw_only=True):
    """The result of a command in a persistent shell, from `Shell.run` and `Shell.wait`.

    `state` is ``done``, ``running`` (at the timeout), ``waiting_for_input`` or ``shell_ended``.
    `exit_code` is that of the command if it is done, that of the shell if the shell has ended, and
    otherwise None. `pipe_status` are the exit codes of the last pipeline, and `cwd` is the
    directory of the shell; each is None if it is not known.

    `boundary` is ``unknown`` if the shell has not reported the command's beginning, or if the
    shell's marks and report do not agree on the command's end. Then the command's exit code is not
    known, and `output` may have too much or too little text.

    `output` is the text from the beginning of the command, also in the result of `Shell.wait`. If
    `truncated` is true, the first `output_begin` bytes (UTF-8) of this text are left out;
    `beginning` and `total_lines` are then as in `RetainedOutput`.
    It begins at the position `begin` of the terminal's output, which was read up to `position`.
    `started_new` is true if a shell was started
    for this command because the previous shell had ended.
    `detail` explains the result in a sentence; it may be empty. If the command waits for input,
    `waiting_program` says which program, as in `Output`.
    """

    state: ShellState
    output: str
    exit_code: int | None = None
    pipe_status: list[int] | None = None
    cwd: str | None = None
    boundary: Literal["exact", "unknown"]
    wall_seconds: float
    position: int
    begin: int = 0
    truncated: bool = False
    output_begin: int = 0
    beginning: str | None = None
    total_lines: int | None = None
    started_new: bool = False
    detail: str = ""
    waiting_program: str | None = None
