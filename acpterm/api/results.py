"""The values that the methods of the API return.

A position is an offset in bytes from the beginning of a terminal's output; `position` is where the
next read continues. `lost` is a number of bytes that were no longer retained, and so are missing.
"""

import re
from hashlib import sha256
from typing import Literal, TypeAlias

import msgspec
from msgspec import Struct

Reason: TypeAlias = Literal["match", "idle", "input", "exit", "timeout"]
Level: TypeAlias = Literal["safe", "unknown", "dangerous"]
Decision: TypeAlias = Literal["allow", "ask", "deny"]
ShellState: TypeAlias = Literal["done", "running", "waiting_for_input", "shell_ended"]


class Exit(Struct, frozen=True):
    """How a terminal's program ended.

    Either `code` or `signal` (such as ``SIGTERM``) is set. `ended_by` says what ended it:
    ``exited`` if it ended by itself, ``agent``, ``user``, ``timeout``, ``idle``, ``limit`` (then
    `limit` is the name of the limit), ``disconnect``, or ``lost`` if the status is unknown.
    `wall_seconds` is how long it ran.
    """

    code: int | None
    signal: str | None
    ended_by: str | None = None
    wall_seconds: float = 0.0
    limit: str | None = None


class Output(Struct, frozen=True):
    """Output as text, from `Terminal.read`.

    `exit` is set once the program has exited. `waiting_for_input` says whether the program waits
    for input; None if it has exited, or if that cannot be determined.
    """

    text: str
    position: int
    lost: int
    exit: Exit | None = None
    waiting_for_input: bool | None = None


class RawOutput(Struct, frozen=True):
    """Output as bytes with all escape sequences, from `Terminal.read_raw`."""

    data: bytes
    position: int
    lost: int
    exit: Exit | None = None
    waiting_for_input: bool | None = None


class RetainedOutput(Struct, frozen=True):
    """All retained output as text, from `Terminal.output`.

    `truncated` is true if the beginning of the output is no longer retained.
    """

    text: str
    truncated: bool
    position: int
    exit: Exit | None = None


class Screen(Struct, frozen=True):
    """The screen of a terminal, from `Terminal.screen`.

    `rows` are the rows as text, without blanks at their ends; `styled_rows` have colours as escape
    sequences. `lines` is the number of rows. `cursor` is a column and a row, counted from 0.
    `alternate` is true while a full-screen program uses the alternate screen.
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
    def hash(self) -> str:
        """A hexadecimal digest of contents, colours and cursor; equal screens have equal ones."""
        shown = (self.styled_rows, self.cols, self.lines, self.cursor, self.cursor_visible)
        return sha256(msgspec.json.encode(shown)).hexdigest()[:16]


class Waited(Struct, frozen=True):
    """What `Terminal.wait_for` has waited for, and the output that came meanwhile.

    `reason` says which condition ended the wait: ``match``, ``idle``, ``input``, ``exit`` or
    ``timeout``. `match` is set if it is ``match``; it is a match in `text`.
    """

    reason: Reason
    match: re.Match[str] | None
    text: str
    position: int
    lost: int
    exit: Exit | None = None
    waiting_for_input: bool | None = None


class CommandPart(Struct, frozen=True):
    """One command of a line: its words, its level, and why it is not safe (empty if it is).

    A part without `words` is the line itself.
    """

    words: list[str]
    level: Level
    reason: str


class CommandCheck(Struct, frozen=True):
    """The judgement on a command, from `Client.check`.

    `decision` says whether an agent's command would run, or the user be asked. `rule` is the rule
    that has decided, if one has, and `reason` why the command is not allowed or not safe. `parts`
    are the commands that the command executes. `profile` is the name of the profile.
    """

    level: Level
    decision: Decision
    reason: str | None
    rule: str | None
    parts: list[CommandPart]
    profile: str


class Completed(Struct, frozen=True, kw_only=True):
    """What became of a command, from `Shell.run` and `Shell.wait`.

    `state` is ``done``, ``running`` (at the timeout), ``waiting_for_input`` or ``shell_ended``.
    `exit_code` is set if the command has ended, or is that of the shell if the shell has. The other
    values are None if they are not known. `pipe_status` are the exit codes of the last pipeline.

    `boundary` is ``unknown`` if the shell's marks and its report do not agree on the end of the
    command; there is no exit code then, and `output` may contain other output or lack some.

    `output` is the text from the beginning of the command, also in the result of `Shell.wait`;
    `truncated` says whether it begins later: `output_begin` bytes of text (UTF-8) later. `position`
    is the position in the terminal's output up to which it was read. `started_new` is true if a
    shell was started for this command because the one before has ended. `detail` is a sentence for
    the reader.
    """

    state: ShellState
    output: str
    exit_code: int | None = None
    pipe_status: list[int] | None = None
    cwd: str | None = None
    boundary: Literal["exact", "unknown"]
    wall_seconds: float
    position: int
    truncated: bool = False
    output_begin: int = 0
    started_new: bool = False
    detail: str = ""
