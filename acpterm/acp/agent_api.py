"""acpterm's own methods for agents, ``_acpterm/…``: their params and results.

The options that acpterm adds to methods of ACP are in `agent_meta`.

Params are decoded strictly: an invalid value is an error that names the value, because an agent
that uses these methods is written for acpterm. A null member is treated as absent.

Times are in milliseconds and sizes in bytes. A position is an offset in bytes from the beginning of
a terminal's output.
"""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType

from acpterm.acp.base import Wire
from acpterm.acp.terminal import SessionId, TerminalExitStatus, TerminalId

EVENTS: Final = "_acpterm/events"

EXTENSION_METHODS: Final = (
    "_acpterm/terminal/list",
    "_acpterm/terminal/get",
    "_acpterm/terminal/read",
    "_acpterm/terminal/screen",
    "_acpterm/terminal/write",
    "_acpterm/terminal/resize",
    "_acpterm/terminal/signal",
    "_acpterm/terminal/promote",
    "_acpterm/command/check",
    "_acpterm/session/set",
    EVENTS,
)
"""The names of acpterm's own methods for agents."""

Format: TypeAlias = Literal["text", "raw", "screen"]
Level: TypeAlias = Literal["safe", "unknown", "dangerous"]

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Cells = Annotated[int, Meta(ge=1, le=10000)]


class ReadRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/terminal/read``: read the output from the position `since` on.

    A position is an offset in bytes from the beginning of the terminal's output. Without `since`,
    read from the oldest retained byte. At most `max_bytes` bytes of output are read. If there is no
    output after `since` yet, wait up to `wait_ms` milliseconds for output. With `until_input` the
    wait also ends when the program waits for input or is stopped. `format` is the form of the
    returned output; by default, the form in which ``terminal/output`` returns this terminal's
    output.
    """

    session_id: SessionId
    terminal_id: TerminalId
    since: Natural | None = None
    max_bytes: Positive | None = None
    format: Format | None = None
    wait_ms: Natural | None = None
    until_input: bool = False


class StoppedProgram(Wire):
    """A program that the system has stopped, because it used the terminal from the background.

    `command` is the program's name, `why` says what it wants, such as ``wants to read the
    terminal``, and `hint` what to do. What is typed is not read until then.
    """

    pid: int
    command: str
    why: str
    hint: str


class ReadResponse(Wire):
    """The response to ``_acpterm/terminal/read``.

    `data` is text, or base64 if `encoding` is set. The next read continues from `position`. `lost`
    is the number of bytes after `since` that are missing: they are no longer retained, or they
    belong to a line or an escape sequence whose beginning is no longer retained. `exit_status` is
    absent until the program has exited. `waiting_for_input`, `waiting_program` and `stopped` are as
    in ``terminal/output`` (`agent_meta.OutputMeta`).
    """

    data: str
    position: int
    lost: int
    encoding: Literal["base64"] | UnsetType = UNSET
    exit_status: TerminalExitStatus | UnsetType = UNSET
    waiting_for_input: bool | UnsetType = UNSET
    stopped: StoppedProgram | UnsetType = UNSET
    waiting_program: str | UnsetType = UNSET


class AgentListRequest(Wire, omit_defaults=True):
    """The params of the agents' ``_acpterm/terminal/list``: list the terminals of a session.

    If the user allows it (the setting `agents_read_user_terminals`), the terminals that the user
    created are listed too, unless `user` is false. With `left`, released terminals are listed too
    whose commands have left something running.
    """

    session_id: SessionId
    user: bool = True
    left: bool = False


class WriteRequest(Wire):
    """The params of ``_acpterm/terminal/write``: write `data` as keyboard input."""

    session_id: SessionId
    terminal_id: TerminalId
    data: Annotated[str, Meta(description="what to type")]


class WriteResponse(Wire):
    """The response to ``_acpterm/terminal/write``: the number of bytes that were written."""

    written: int


class ResizeRequest(Wire):
    """The params of ``_acpterm/terminal/resize``: set the size of a terminal, in cells."""

    session_id: SessionId
    terminal_id: TerminalId
    cols: Cells
    rows: Cells


class SignalRequest(Wire):
    """The params of ``_acpterm/terminal/signal``: send a signal to the foreground process group."""

    session_id: SessionId
    terminal_id: TerminalId
    signal: Annotated[str, Meta(description="the name of a signal, such as SIGINT")]


class CheckRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/command/check``: judge a command without running it.

    `command`, `args`, `cwd` and `cwd_bytes` are as in ``terminal/create``. If `ask` is true and the
    command needs approval, the user is asked, and the response is sent after the user's answer. If
    `ask` is true and the policy or the user refuses the command, the response is an error. If `ask`
    is false, the user is not asked, and the response contains the decision of the policy.
    """

    session_id: SessionId
    command: Annotated[str, Meta(description="the command to judge")]
    args: list[str] | None = None
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None
    ask: bool = False
    cwd_bytes: bytes | None = None


class CheckedPart(Wire):
    """A command of the line that was judged: its words, its level, and the reason for the level.

    `reason` is empty if the command is safe. If `words` is empty, `level` and `reason` are about
    the line as a whole, for example because it is too long to be judged.
    """

    words: list[str]
    level: Level
    reason: str


class CheckResponse(Wire):
    """The response to ``_acpterm/command/check``: the judgement on a command.

    `level` is the level of the command, and `parts` has the commands that it consists of.
    `decision` says whether the command would run: `allow`, `ask` or `deny`. `reason` says why the
    command is not allowed or not safe. `rule` is the rule or list that has decided; it is absent if
    the level has decided. `profile` is the name of the profile that gave the decision. `kind` is
    what the command would lose, such as `work` or `secrets`, if that is the reason.
    """

    level: Level
    decision: Literal["allow", "ask", "deny"]
    parts: list[CheckedPart]
    profile: str
    reason: str | UnsetType = UNSET
    rule: str | UnsetType = UNSET
    kind: str | UnsetType = UNSET


class AgentGetRequest(Wire, omit_defaults=True):
    """The params of the agents' ``_acpterm/terminal/get``: return the state of a terminal.

    With `background`, the member `background` of the response is sent also while the program runs:
    the processes that are neither in the terminal's foreground nor have started what is, such as
    the jobs of a shell at its prompt.
    """

    session_id: SessionId
    terminal_id: TerminalId
    background: bool = False


class SetSessionRequest(Wire):
    """The params of ``_acpterm/session/set``: set the default ``cwd`` of a session's terminals.

    ``_acpterm/session/open`` has the same params, and lets the session's programs write in `cwd`.
    `cwd_bytes` is as in ``terminal/create``.
    """

    session_id: SessionId
    cwd: Annotated[str, Meta(description="an absolute path")] = ""
    cwd_bytes: bytes | None = None


class AgentEventsRequest(Wire):
    """The params of the agents' ``_acpterm/events``: send events about a session's terminals.

    Each event is an ``_acpterm/event`` notification with the `token` of this request. The request
    lasts until it is cancelled or the session is closed.
    """

    session_id: SessionId
    token: Annotated[str, Meta(description="any string: the request's notifications carry it, too")]
