"""The wire types of the user's socket: ``_acpterm/…`` requests of the user's commands.

As in `agent_api`, they are decoded strictly. A terminal is given by its id, by an unambiguous
prefix of its id, by its name, or by ``@last`` for the terminal that was created last.

Times of day are in milliseconds since 1970, sizes in bytes, positions in bytes of the terminal's
stream since its beginning. The requests that stay open and send notifications (`attach`, `follow`,
`export`, `events`, `subscribe`) are in `user_streams`.
"""

from typing import Annotated, Literal, TypeAlias

from msgspec import Meta, field

from acpterm.acp.agent_api import Cells, Format, Natural, Positive
from acpterm.acp.base import Wire
from acpterm.acp.terminal import EnvVariable

TerminalName = Annotated[
    str, Meta(description="a terminal's id, the beginning of it, its name, or @last")
]
Owner: TypeAlias = Literal["agent", "user"]
State: TypeAlias = Literal["running", "exited", "released"]


class NoParams(Wire):
    """The params of a method without params."""


class ListRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/list``. `all` includes released terminals that are retained."""

    all: bool = False


class UserTerminalRequest(Wire):
    """The params of methods that take only a terminal."""

    terminal_id: TerminalName


class GetRequest(UserTerminalRequest, omit_defaults=True):
    """``_acpterm/terminal/get``.

    With `own`, ``@last`` is the user's own terminal that was created last, as for ``attach`` and
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
    """The state of a terminal, as the user sees it.

    `waiting_for_input` is null if it cannot be known. `ending` says that the terminal was killed or
    released and its program has not ended yet.
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
    """The response to ``_acpterm/terminal/list``: terminals in the order of their creation."""

    terminals: list[TerminalInfo]


class UserCreateRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/create``: create a terminal of the user's own.

    `command` and `args` are as in ``terminal/create``. The response is a TerminalInfo. With `hold`
    the program blocks until this connection follows it with `hold`, so that no output is lost.
    `stdin` is the path of a named pipe or file to be the program's standard input instead of the
    terminal. With `remove` the terminal is removed when its program has ended.
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
    """``_acpterm/terminal/read``: read any terminal.

    The params are those of an agent's read (protocol.md), without the session.
    """

    terminal_id: TerminalName
    since: Natural | None = None
    max_bytes: Positive | None = None
    format: Format | None = None
    wait_ms: Natural | None = None


class OutputResponse(Wire):
    """The response to ``_acpterm/terminal/output``: the text that an agent would get.

    It is the text up to `position`. `truncated` says that its beginning was dropped.
    """

    text: str
    truncated: bool
    position: int
    exit_status: ExitInfo | None


class UserWriteRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/write``: write input, as an agent does. With `encoding`, any bytes."""

    terminal_id: TerminalName
    data: Annotated[str, Meta(description="what to type")]
    encoding: Literal["base64"] | None = None


class UserResizeRequest(Wire):
    """``_acpterm/terminal/resize``: set the size while no window is attached."""

    terminal_id: TerminalName
    cols: Cells
    rows: Cells


class RenameRequest(Wire):
    """``_acpterm/terminal/rename``: set or replace the name of a terminal."""

    terminal_id: TerminalName
    name: Annotated[str, Meta(description="the new name")]


class LaunchInfo(Wire):
    """The command, environment and umask with which a terminal of the user was created."""

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
    """The response to ``_acpterm/terminal/inspect``: everything known about a terminal.

    `launch` is null for a terminal that an agent created. `oldest` is the position of the oldest
    retained byte of output, `retained_bytes` the memory that the output occupies.
    """

    terminal: TerminalInfo
    launch: LaunchInfo | None
    windows: list[WindowInfo]
    oldest: int
    retained_bytes: int


class UserSignalRequest(Wire):
    """``_acpterm/terminal/signal``: send a signal, by its name such as ``SIGINT``."""

    terminal_id: TerminalName
    signal: Annotated[str, Meta(description="the name of a signal, such as SIGINT")]


class ScreenResponse(Wire):
    """The response to ``_acpterm/terminal/screen``.

    `rows` are text with colours as escape sequences (SGR), which are reset at the end of each row.
    `cursor` is a column and a row, from 0. `application_cursor` says that the program has set the
    application mode of the arrow keys, `bracketed_paste` that pasted text must be marked as such.
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


class SessionInfo(Wire):
    """A session that has terminals or tool calls."""

    session_id: str
    connection: str
    agent: str | None
    cwd: str | None
    terminals: list[str]
    tool_calls: list[str]


class SessionsResponse(Wire):
    """The response to ``_acpterm/session/list``."""

    sessions: list[SessionInfo]


class StatusResponse(Wire):
    """The response to ``_acpterm/status``. Sizes are in bytes, times in milliseconds.

    `keeper_pid` is the process that owns the terminals and sockets, `worker_pid` the process that
    serves requests. `takeovers` counts the workers that have taken over from a predecessor.
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
