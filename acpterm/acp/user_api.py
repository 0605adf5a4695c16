"""What the person's front ends ask a host, on the socket that is not for agents: ``_acpterm/…``.

The rule: as in `extensions`, these are read strictly. A terminal is named by its id, the beginning
of its id or its name if no other has it, or ``@last`` for the one that was made last.

Times of day are in milliseconds since 1970, sizes in bytes, positions in bytes of the terminal's
stream since its beginning. A request that goes on (`attach`, `export`, `events`, `subscribe`) names
a `token` of the asker's choice; what it is told on the way has that token, its answer comes at the
end, and ``$/cancel_request`` ends it.
"""

from typing import Annotated, Any, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from acpterm.acp.agent_api import Cells, Format, Natural, Positive
from acpterm.acp.base import Wire
from acpterm.acp.terminal import EnvVariable

TerminalName = Annotated[
    str, Meta(description="a terminal's id, the beginning of it, its name, or @last")
]
Token = Annotated[str, Meta(description="any string: what is told on the way has it, too")]
Owner: TypeAlias = Literal["agent", "user"]
State: TypeAlias = Literal["running", "exited", "released"]
UpdateFormat: TypeAlias = Literal["meta", "v2"]


class NoParams(Wire):
    """The params of a method that takes none."""


class ListRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/list``. `all` has those too that were released and are kept."""

    all: bool = False


class UserTerminalRequest(Wire):
    """Params of the methods about one terminal that take no more.

    They are ``output``, ``wait``, ``kill``, ``release``, ``promote``, ``screen``, ``inspect`` and
    ``restart``.
    """

    terminal_id: TerminalName


class GetRequest(UserTerminalRequest, omit_defaults=True):
    """``_acpterm/terminal/get``.

    With `own`, ``@last`` is the user's own terminal that was made last, as for ``attach`` and
    ``write``.
    """

    own: bool = False


class ExitInfo(Wire):
    """How a terminal's program ended."""

    exit_code: int | None
    signal: str | None
    ended_by: str
    wall_ms: int


class TerminalInfo(Wire):
    """What the user is sent of a terminal.

    `waiting_for_input` is null where it cannot be known. `ending`: it was killed or released, and
    its program has not ended yet.
    """

    terminal_id: str
    name: str | None
    state: State
    owner: Owner
    visible: bool
    agent: str | None
    connection: str | None
    session_id: str | None
    tool_calls: list[str]
    command: str
    cwd: str
    pid: int | None
    cols: int
    rows: int
    created_at: int
    last_output_at: int | None
    exited_at: int | None
    position: int
    attached: int
    waiting_for_input: bool | None
    recording: str | None
    exit_status: ExitInfo | None
    ending: bool = False
    released_at: int | None = None


class ListResponse(Wire):
    """The answer to ``_acpterm/terminal/list``: in the order in which they were made."""

    terminals: list[TerminalInfo]


class UserCreateRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/create``: a terminal of the person's own.

    `command` and `args` are as in ``terminal/create``. It is answered with a TerminalInfo. With
    `hold` its program waits until this connection follows it with `hold`, and so misses nothing.
    With `stdin`, the path of a named pipe or file, that is the program's standard input, and not
    the terminal. With `remove` the terminal is removed when its program has ended.
    """

    command: Annotated[str, Meta(description="the command to run")]
    args: list[str] | None = None
    env: list[EnvVariable] = field(default_factory=list)
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None
    name: str | None = None
    cols: Cells | None = None
    rows: Cells | None = None
    hold: bool = False
    stdin: Annotated[str | None, Meta(description="an absolute path")] = None
    remove: bool = False


class UserReadRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/read``: as an agent's, of any terminal.

    The params are those of an agent's read (protocol.md), without the session.
    """

    terminal_id: TerminalName
    since: Natural | None = None
    max_bytes: Positive | None = None
    format: Format | None = None
    wait_ms: Natural | None = None


class UserWriteRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/write``: as an agent's; with `encoding` any bytes can be typed."""

    terminal_id: TerminalName
    data: Annotated[str, Meta(description="what to type")]
    encoding: Literal["base64"] | None = None


class UserResizeRequest(Wire):
    """``_acpterm/terminal/resize``: the size that it has while nobody is attached."""

    terminal_id: TerminalName
    cols: Cells
    rows: Cells


class RenameRequest(Wire):
    """``_acpterm/terminal/rename``: give a terminal a name, in place of the one it has."""

    terminal_id: TerminalName
    name: Annotated[str, Meta(description="the new name")]


class LaunchInfo(Wire):
    """What a terminal of the user's was created with: its environment, umask and command."""

    command: str
    args: list[str] | None
    env: dict[str, str]
    umask: int


class WindowInfo(Wire):
    """An attached window."""

    cols: int
    rows: int
    read_only: bool


class InspectResponse(Wire):
    """The answer to ``_acpterm/terminal/inspect``: all that is known of a terminal.

    `launch` is null for one that an agent created. `oldest` is the position of the oldest byte of
    output that can be read, `retained_bytes` the memory that the output takes.
    """

    terminal: TerminalInfo
    launch: LaunchInfo | None
    windows: list[WindowInfo]
    oldest: int
    retained_bytes: int


class UserSignalRequest(Wire):
    """``_acpterm/terminal/signal``: a signal by its name, such as ``SIGINT``."""

    terminal_id: TerminalName
    signal: Annotated[str, Meta(description="the name of a signal, such as SIGINT")]


class ScreenResponse(Wire):
    """The answer to ``_acpterm/terminal/screen``.

    `rows` are text with colours as escape sequences (SGR), each ending without any; `cursor` is a
    column and a row from 0. `application_cursor` says how the program wants the arrow keys,
    `bracketed_paste` whether it wants to be told what is pasted.
    """

    rows: list[str]
    cols: int
    lines: int
    cursor: tuple[int, int]
    cursor_visible: bool
    application_cursor: bool
    bracketed_paste: bool
    title: str | None
    position: int


class ExportRequest(Wire):
    """``_acpterm/terminal/export``: what is kept of a terminal, as asciicast v2.

    It is told in parts, and answered at the end.
    """

    terminal_id: TerminalName
    token: Token


class ExportedNotification(Wire):
    """``_acpterm/terminal/exported``: the next lines of an asciicast, each with its newline."""

    token: Token
    lines: str


class AttachRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/attach``: show a terminal in a window of so many columns and rows."""

    terminal_id: TerminalName
    token: Token
    cols: Cells
    rows: Cells
    read_only: bool = False


class AttachedNotification(Wire, omit_defaults=True):
    """``_acpterm/terminal/attached``: what the window is to print next, base64 of bytes.

    `kind` is `screen` when it repaints the whole window, `output` for what follows. A screen
    that is `alternate` is painted on the window's alternate screen; the main one stays as it is,
    and is painted by another `screen` before anything is printed there.
    """

    token: Token
    kind: Literal["screen", "output"]
    data: str
    alternate: bool = False


class AttachResponse(Wire):
    """The answer to ``_acpterm/terminal/attach``, when it is over.

    `reason`: the program has `exited`, or the terminal was `released` while it ran on.
    """

    reason: Literal["exited", "released"]
    exit_status: ExitInfo | None = None


class WindowRequest(Wire):
    """``_acpterm/terminal/window``: an attached window has this size now, and is painted anew."""

    token: Token
    cols: Cells
    rows: Cells


class EventsRequest(Wire):
    """``_acpterm/events``: have everything told that happens from now on."""

    token: Token


class EventNotification(Wire, omit_defaults=True):
    """``_acpterm/event``: something has happened. `lost` counts those before that were not told.

    `event` is one of ``connected``, ``disconnected``, ``created``, ``exited``, ``killed``,
    ``released``, ``promoted``, ``renamed``, ``waiting``, ``resumed``, ``attached``, ``detached``,
    ``resized`` and ``tool_call``.
    """

    token: Token
    event: str
    at: int
    terminal: TerminalInfo | None = None
    connection: str | None = None
    agent: str | None = None
    session_id: str | None = None
    by: str | None = None
    update: Any | UnsetType = UNSET
    lost: int = 0


class SessionInfo(Wire):
    """A session that has terminals or tool calls."""

    session_id: str
    connection: str
    agent: str | None
    cwd: str | None
    terminals: list[str]
    tool_calls: list[str]


class SessionsResponse(Wire):
    """The answer to ``_acpterm/session/list``."""

    sessions: list[SessionInfo]


class SubscribeRequest(Wire, omit_defaults=True):
    """``_acpterm/session/subscribe``: have the tool calls of a session told, and their terminals.

    They are told as ``session/update``, in the given `form`. `connection` is needed where two have
    a session of that id. Answered when the session's connection has closed.
    """

    session_id: Annotated[str, Meta(description="the id of a session")]
    token: Token
    connection: str | None = None
    format: UpdateFormat = "meta"


class StatusResponse(Wire):
    """The answer to ``_acpterm/status``. Sizes in bytes, times in milliseconds.

    `keeper_pid` is the process that has the terminals and listens, `worker_pid` the one that
    answers; `takeovers` counts the workers that have taken over from another one.
    """

    version: str
    pid: int
    keeper_pid: int
    worker_pid: int
    takeovers: int
    agent_socket: str | None
    user_socket: str | None
    uptime_ms: int
    idle_exit_ms: int | None
    tracking: str
    running: int
    exited: int
    retained: int
    agents: int
    users: int
    rss_bytes: int | None
    output_bytes: int
