"""The user's requests about terminals, sessions and the daemon, ``_acpterm/…``, and the responses.

Requests that stay open and send notifications are in `user_streams`; those about the policy, the
audit log and recordings in `user_review`; those about the HTTP server in `web_api`.

As in `agent_api`, params are decoded strictly. A terminal is named by its id, by an unambiguous
prefix of its id, by its name, or by ``@last`` for the terminal that was created last.

A field `…_at` is in milliseconds since 1970, and a field `…_ms` is a duration in milliseconds.
Sizes are in bytes. A position is an offset in bytes from the beginning of a terminal's output.
"""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from acpterm.acp.agent_api import Cells, Format, Natural, Positive, StoppedProgram
from acpterm.acp.agent_meta import BackgroundProcess, CreateOptions, ExitFacts
from acpterm.acp.base import Wire
from acpterm.acp.terminal import EnvVariable
from acpterm.acp.web_api import WebStatusResponse

TerminalName = Annotated[
    str, Meta(description="a terminal's id, the beginning of it, its name, or @last")
]
Owner: TypeAlias = Literal["agent", "user"]
State: TypeAlias = Literal["queued", "running", "exited", "released"]

ACTIVE: Final[tuple[State, ...]] = ("queued", "running")
"""The states of a terminal whose program has not ended."""


class NoParams(Wire):
    """The params of a method without params."""


class ListRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/terminal/list``: list terminals; with `all`, also released ones."""

    all: bool = False


class UserTerminalRequest(Wire):
    """The params of the methods whose only param is a terminal."""

    terminal_id: TerminalName


class GetRequest(UserTerminalRequest, omit_defaults=True):
    """The params of ``_acpterm/terminal/get``: return the state of a terminal.

    `own` is for a client that types into the terminal. The user's terminals are those that the user
    has created or taken over. With `own`, ``@last`` is the newest of the user's terminals; it is an
    error if there are none. Also with `own`, a name that the user's and an agent's terminal have in
    common means the user's terminal, even if its program has ended. Without `own`, ``@last`` is the
    newest of all terminals. ``attach`` and ``write`` always find their terminal as with `own`.
    `background` is as in the agents' request.
    """

    own: bool = False
    background: bool = False


class ExitInfo(ExitFacts):
    """How a terminal's program ended, what ended it (such as `agent`), and how long it ran.

    One of `exit_code` and `signal` is null. If `ended_by` is `lost`, the exit status is unknown and
    `exit_code` is 255. If a limit ended the program, `limit` is the name of the limit, and
    `limit_value` its value, in bytes, seconds or milliseconds as in protocol.md.
    """

    exit_code: int | None
    signal: str | None
    ended_by: str


class TerminalInfo(Wire):
    """The state of a terminal, as the user's commands show it.

    The `state` is `queued` while a cluster has no room for the program yet.

    `agent` (a name), `connection` and `session_id` (ids) say which agent created the terminal, and
    in which session; they are null if the user created it. `tool_calls` are the ids of the tool
    calls that embed the terminal. `position` is the position of the end of the output. `attached`
    is the number of windows. `recording` is the path of the recording; null if there is none.
    `waiting_for_input` is true while the program asks something, and null if acpterm cannot
    determine that; `waiting_program` says which program waits, as in protocol.md. A shell at its
    prompt, an editor and a pager have a `waiting_program`, but ask nothing. `cwd_gone` is the
    directory of the agent's session if it was gone: `cwd` is then its nearest parent. `ending` is
    true while the program, after a kill or release, has not exited yet. `pid` is null once the
    program has exited. `provider` says where the program runs, and `isolation` how it is isolated
    there. `host` is the name of the host that the program runs on; it is absent if that is this
    host. `level` is the level of an agent's command: `safe`, `unknown` or `dangerous`; it is null
    for a command of the user. `loss` says what the command was judged to lose: its kind, and the
    names; it is absent if that is nothing. `is_kept` is true if ``acpterm undo`` can bring its
    directory back to what it was before the command; `unkept` says why it cannot, or, if `is_kept`
    is true, that it brings back only files. `hides_input` is true while a line is entered without
    echo, as a password is. `unenforced_limits` has a sentence about each limit that was set but
    cannot be enforced here. `stopped` is sent while a program is stopped. `background` and
    `background_omitted` are what the program has left running, as in the exit status that agents
    get. `promoted_by` is who has given an agent's terminal to the user.
    """

    terminal_id: str
    name: str | None
    state: State
    owner: Owner
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
    provider: str = "local"
    isolation: Literal["none", "sandbox", "container"] = "none"
    host: str | UnsetType = UNSET
    level: str | None = None
    loss: str | UnsetType = UNSET
    unkept: str | UnsetType = UNSET
    is_kept: bool | UnsetType = UNSET
    unenforced_limits: list[str] | UnsetType = UNSET
    hides_input: bool = False
    stopped: StoppedProgram | UnsetType = UNSET
    background: list[BackgroundProcess] | UnsetType = UNSET
    background_omitted: int | UnsetType = UNSET
    waiting_program: str | UnsetType = UNSET
    cwd_gone: str | UnsetType = UNSET
    promoted_by: Owner | UnsetType = UNSET


class ListResponse(Wire):
    """The response to ``_acpterm/terminal/list``: terminals in the order of their creation."""

    terminals: list[TerminalInfo]


class UserCreateRequest(CreateOptions, omit_defaults=True):
    """The params of ``_acpterm/terminal/create``: create a terminal that the user owns.

    `command` and `args` are as in ``terminal/create``. The response is a TerminalInfo. With `hold`,
    the ring keeps all output until this connection has read it by a ``follow`` request that also
    has `hold`; other requests do not count. While the ring is full of output that is kept, the
    program blocks. `stdin` is the path of a named pipe that becomes the program's standard input
    instead of the terminal; containers and places do not support it. With `remove` the terminal is
    removed when its program has exited. `provider` says where the program runs; `local` by default.
    `resources` are requested from the cluster on which the program runs; elsewhere than on a
    cluster, they are an error. If `name` ends with ``-#``, the ``#`` is replaced by a number with
    which no terminal has had the name. `cwd` is the client's directory by default.
    """

    command: Annotated[str, Meta(description="the command to run")]
    args: list[str] | None = None
    env: list[EnvVariable] = field(default_factory=list)
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None
    hold: bool = False
    remove: bool = False


class UserReadRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/terminal/read``: read the output of any terminal.

    Reading starts at the position `since`; by default at the oldest retained byte. If there is no
    output after `since` yet, wait up to `wait_ms` milliseconds for output. With `until_input` the
    wait also ends when the program waits for input. These are the params of the agents' method of
    the same name (see protocol.md), without ``sessionId``.
    """

    terminal_id: TerminalName
    since: Natural | None = None
    max_bytes: Positive | None = None
    format: Format | None = None
    wait_ms: Natural | None = None
    until_input: bool = False


class OutputResponse(Wire):
    """The response to ``_acpterm/terminal/output``: the output as text, as an agent reads it.

    `text` contains the output up to `position`. `truncated` is true if the beginning of the text is
    no longer retained.
    """

    text: str
    truncated: bool
    position: int
    exit_status: ExitInfo | None


class UserWriteRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/terminal/write``: write `data` as keyboard input.

    `data` is text, or base64 if `encoding` is set. A client that has lost its connection may repeat
    its last request with the same `token`: input that was typed already is not typed again.
    """

    terminal_id: TerminalName
    data: Annotated[str, Meta(description="what to type")]
    encoding: Literal["base64"] | None = None
    token: Annotated[str, Meta(max_length=64)] | None = None


class UserResizeRequest(Wire):
    """The params of ``_acpterm/terminal/resize``: set the size of a terminal, in cells.

    While windows that are not read-only are attached, the terminal has the minimum of their columns
    and the minimum of their rows. It gets the requested size when the last of them detaches.
    """

    terminal_id: TerminalName
    cols: Cells
    rows: Cells


class RenameRequest(Wire):
    """The params of ``_acpterm/terminal/rename``: set or replace the name of a terminal."""

    terminal_id: TerminalName
    name: Annotated[str, Meta(description="the new name")]


class LaunchInfo(Wire):
    """The command, environment and umask with which the user created a terminal."""

    command: str
    args: list[str] | None
    env: dict[str, str]
    umask: int


class WindowInfo(Wire):
    """An attached window, and whether it only displays the terminal (`read_only`)."""

    cols: int
    rows: int
    read_only: bool


class InspectResponse(Wire):
    """The response to ``_acpterm/terminal/inspect``: everything known about a terminal.

    `launch` is null for a terminal that an agent created. `oldest` is the position of the oldest
    retained byte of output. `retained_bytes` is the size of the memory that the output occupies.
    """

    terminal: TerminalInfo
    launch: LaunchInfo | None
    windows: list[WindowInfo]
    oldest: int
    retained_bytes: int


class UserSignalRequest(Wire):
    """The params of ``_acpterm/terminal/signal``: send a signal to the foreground process group."""

    terminal_id: TerminalName
    signal: Annotated[str, Meta(description="the name of a signal, such as SIGINT")]


class ScreenResponse(Wire):
    """The response to ``_acpterm/terminal/screen``: the contents and the modes of the screen.

    A row is text with colours as escape sequences (SGR), which are reset at the end of the row.
    `lines` is the number of rows. `cursor` is a column and a row, counted from 0.
    `application_cursor` is true if the program has set the application mode of the arrow keys, and
    `bracketed_paste` if it has requested escape sequences around pasted text. `alternate` is true
    while the program shows the alternate screen, as full-screen programs do. `position` is the
    position in the output up to which the screen was drawn.
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
    alternate: bool = False


class SessionInfo(Wire):
    """A session with the ids of its terminals and tool calls; `agent` is the agent's name.

    `connection` is the id of the agent's connection. `cwd` is the default directory of the
    session's terminals; null if the agent has set none.
    """

    session_id: str
    connection: str
    agent: str | None
    cwd: str | None
    terminals: list[str]
    tool_calls: list[str]


class SessionsResponse(Wire):
    """The response to ``_acpterm/session/list``: the sessions that have terminals or tool calls."""

    sessions: list[SessionInfo]


class StatusResponse(Wire):
    """The response to ``_acpterm/status``: the state of the daemon.

    `keeper_pid` and `worker_pid` are the pids of the keeper and of the worker. `pid` is the pid of
    the daemon's main process: the keeper or, with `--embedded`, the worker. `takeovers` is the
    number of take-overs: how many times a new worker has replaced another one. `idle_exit_ms` is
    the time after which an idle daemon exits; null for never. `tracking` is how processes are
    tracked: `cgroup` or `subreaper`. Three fields count terminals: `running` those whose program
    runs, `retained` those that are retained after their release, and `exited` the others whose
    program has exited. `agents` and `users` are numbers of connections. `rss_bytes` is the resident
    memory of the worker, and `output_bytes` the part of it that retained output occupies.
    `questions` is the number of questions that wait for the user's answer. `http` is the state of
    the HTTP server; null if the host is no daemon. `provider` and `profile` are the settings of
    these names. `sources` says where each setting that is set comes from: a path, an environment
    variable or the flags of `acpterm serve`. `audit_dir` is the directory of the audit log; null if
    there is none. `undo_dir` is that of the snapshots for ``acpterm undo``.
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
    questions: int = 0
    http: WebStatusResponse | None = None
    provider: str = ""
    profile: str = ""
    sources: dict[str, str] = field(default_factory=dict)
    audit_dir: str | None = None
    undo_dir: str | None = None
