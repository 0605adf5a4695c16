"""acpterm's own methods for agents, ``_acpterm/…``, and the member `acpterm` of ``_meta``.

Params and that member are decoded strictly: an invalid value is an error that names the value,
because an agent that uses them is written for acpterm. A null member is treated as absent.

Times are in milliseconds and sizes in bytes. A position is an offset in bytes from the beginning of
a terminal's output.
"""

from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, UnsetType, field

from acpterm.acp.base import MetaIn, Wire
from acpterm.acp.lenient import decode
from acpterm.acp.terminal import SessionId, TerminalExitStatus, TerminalId

OWN: Final = "acpterm"
"""The name of the member of ``_meta`` that belongs to acpterm."""

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

EXTENSIONS: Final[dict[str, list[str]]] = {
    "methods": list(EXTENSION_METHODS),
    "createMeta": ["cols", "rows", "timeoutMs", "shell", "format", "provider", "name", "resources"],
    "createdMeta": ["provider", "isolation", "level", "name", "host", "queued"],
    "outputMeta": ["waitingForInput", "queued"],
    "exitStatusMeta": ["endedBy", "wallMs", "cpuMs", "maxRssBytes", "limit", "limitValue", "host"],
}
"""What a host offers agents besides ACP v1, advertised in ``clientCapabilities._meta``."""

Format: TypeAlias = Literal["text", "raw", "screen"]
EndedBy: TypeAlias = Literal[
    "exited",
    "agent",
    "user",
    "timeout",
    "idle",
    "limit",
    "lost",
    "disconnect",
    "node_failure",
    "time_limit",
    "preempted",
    "cancelled",
    "not_started",
]

Level: TypeAlias = Literal["safe", "unknown", "dangerous"]

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Cells = Annotated[int, Meta(ge=1, le=10000)]


class ReadRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/terminal/read``: read the output from the position `since` on.

    A position is an offset in bytes from the beginning of the terminal's output. Without `since`,
    read from the oldest retained byte. If there is no output after `since` yet,
    wait up to `wait_ms` milliseconds for some. With `until_input` the wait ends, too, when the
    program waits for input.
    """

    session_id: SessionId
    terminal_id: TerminalId
    since: Natural | None = None
    max_bytes: Positive | None = None
    format: Format | None = None
    wait_ms: Natural | None = None
    until_input: bool = False


class ReadResponse(Wire):
    """The response to ``_acpterm/terminal/read``.

    `data` is text, or base64 if `encoding` is set. The next read continues from `position`. `lost`
    is the number of bytes from `since` on that are no longer retained, and so are not in `data`.
    `waiting_for_input` is as in ``terminal/output`` (`OutputMeta`).
    """

    data: str
    position: int
    lost: int
    encoding: Literal["base64"] | UnsetType = UNSET
    exit_status: TerminalExitStatus | UnsetType = UNSET
    waiting_for_input: bool | UnsetType = UNSET


class AgentListRequest(Wire, omit_defaults=True):
    """The params of the agents' ``_acpterm/terminal/list``: list the terminals of a session.

    If the user allows it (the setting `agents_read_user_terminals`), the terminals that the user
    created are listed too, unless `user` is false.
    """

    session_id: SessionId
    user: bool = True


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

    `command`, `args` and `cwd` are as in ``terminal/create``. With `ask` the user is asked if the
    user has to approve the command, and a command that may not run is an error.
    """

    session_id: SessionId
    command: Annotated[str, Meta(description="the command to judge")]
    args: list[str] | None = None
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None
    ask: bool = False


class CheckedPart(Wire):
    """A command of the line that was judged: its words, its level, and why it is not safe.

    A part without `words` is the line itself.
    """

    words: list[str]
    level: Level
    reason: str


class CheckResponse(Wire):
    """The response to ``_acpterm/command/check``: the judgement on a command.

    `decision` says whether it would run: `allow`, `ask` or `deny`. `reason` says why it is not
    allowed or not safe. `rule` is the rule or list that has decided, if one has, and `profile` the
    name of the profile.
    """

    level: Level
    decision: Literal["allow", "ask", "deny"]
    parts: list[CheckedPart]
    profile: str
    reason: str | UnsetType = UNSET
    rule: str | UnsetType = UNSET


class SetSessionRequest(Wire):
    """The params of ``_acpterm/session/set``: set the default ``cwd`` of a session's terminals."""

    session_id: SessionId
    cwd: Annotated[str, Meta(description="an absolute path")]


class AgentEventsRequest(Wire):
    """The params of the agents' ``_acpterm/events``: send events about a session's terminals.

    The events are ``_acpterm/event`` notifications with the `token`, until the request is cancelled
    or the session is closed.
    """

    session_id: SessionId
    token: Annotated[str, Meta(description="any string: the request's notifications carry it, too")]


class ResourcesParams(Wire, omit_defaults=True, forbid_unknown_fields=True):
    """What a create request asks of a cluster, instead of what the place's settings say.

    The values are as Slurm writes them: `time` is minutes or ``HOURS:MINUTES:SECONDS``, `memory`
    such as ``4G``, and `gpus` such as ``1`` or ``a100:2``. Other members are an error.
    """

    partition: str | None = None
    account: str | None = None
    time: str | None = None
    cpus: Positive | None = None
    memory: str | None = None
    gpus: str | None = None


class CreateMeta(Wire, omit_defaults=True):
    """``_meta.acpterm`` of a ``terminal/create`` request: options that ACP does not have.

    The terminal has `cols` columns and `rows` rows. The program is killed after `timeout_ms`
    milliseconds. `shell` is true if `command` is shell text, and false if it is a program. `format`
    is the form in which ``terminal/output`` returns the output. `provider` requests that the
    program runs in a stricter isolation than the user has selected (`landlock`, `bubblewrap`,
    `podman` or `docker`), or in a place that the user's profile lists, such as `ssh:build1`. `name`
    is a name for the terminal; if it ends with ``-#``, the ``#`` is replaced by the smallest number
    from 1 on that makes a name which no terminal has. `resources` are for a place on a cluster.
    """

    cols: Cells | None = None
    rows: Cells | None = None
    timeout_ms: Positive | None = None
    shell: bool | None = None
    format: Format | None = None
    provider: str | None = None
    name: str | None = None
    resources: ResourcesParams | None = None


class CreatedMeta(Wire):
    """``_meta.acpterm`` of a ``terminal/create`` response.

    It says where the program runs, how it is isolated, the level of the command, the name of the
    terminal if one was requested, and the host if it is another one. `queued` is true if a cluster
    has not started the program yet.
    """

    provider: str
    isolation: Literal["none", "sandbox", "container"]
    level: str | None
    name: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    queued: bool | UnsetType = UNSET


class OutputMeta(Wire):
    """``_meta.acpterm`` of a ``terminal/output`` response: whether the program waits for input.

    It is sent only while the program runs, and only if acpterm can determine whether it waits. If
    the program has not started, because a cluster has no room for it yet, `queued` is true instead.
    """

    waiting_for_input: bool | UnsetType = UNSET
    queued: bool | UnsetType = UNSET


class ExitMeta(Wire):
    """``_meta.acpterm`` of an exit status: what ended the program, and the resources it used.

    If a limit ended the program, `limit` is its name, and `limit_value` its value in its own unit:
    bytes (`memory`, `file_size`), seconds (`idle`, `wall`) or milliseconds (`timeoutMs`). `host` is
    the host that the program ran on, if it is another one.
    """

    ended_by: EndedBy
    wall_ms: int
    cpu_ms: int | UnsetType = UNSET
    max_rss_bytes: int | UnsetType = UNSET
    limit: str | UnsetType = UNSET
    limit_value: float | UnsetType = UNSET
    host: str | UnsetType = UNSET


class ExecContextParams(Wire, omit_defaults=True):
    """The execution context for the programs that a peer starts, as the peer sends it.

    For an absent member the host uses the value that it has determined itself. `umask` is a number
    (18 is 0o022). `rlimits` maps a name without ``RLIMIT_``, such as ``NOFILE``, to the soft and
    the hard limit; -1 means unlimited.
    """

    env: dict[str, str] | None = None
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None
    umask: Annotated[int, Meta(ge=0, le=0o777)] | None = None
    rlimits: dict[str, tuple[int, int]] | None = None


class InitializeMeta(Wire, omit_defaults=True):
    """``_meta.acpterm`` of an ``initialize`` request.

    `context` is the execution context of the programs that the peer starts. `asker` is its former
    name, and is used if `context` is absent. `relay` is true if the process that connects (`acpterm
    stdio`) only relays the messages of its parent, the agent. `resume` is the secret of an earlier
    connection whose stream has ended, to continue that connection. `approver` is a token that makes
    the connection an approver, whose client asks the user (see `approvals`); only the user's own
    programs can get one. `profile` is the name of a profile that the agent's commands must satisfy
    as well as the one that the user has selected. `elicits` is true if the client shows questions
    to the user by itself; that counts only if the setting `mcp_elicitation_approves` is on.
    """

    context: ExecContextParams | None = None
    asker: ExecContextParams | None = None
    relay: bool | None = None
    resume: Annotated[str | None, Meta(description="the secret of a connection that was lost")] = (
        None
    )
    approver: str | None = None
    profile: str | None = None
    elicits: bool | None = None


class CancelMeta(Wire):
    """``_meta.acpterm`` of a ``session/cancel``: terminals that continue, such as a server."""

    keep: list[TerminalId] = field(default_factory=list)


class ResumeMeta(Wire):
    """``_meta.acpterm`` of the host's response to an agent's ``initialize``.

    `resume` is the secret of this connection. If the stream breaks, the agent sends the secret in
    the ``initialize`` of a new stream to continue the connection, with its sessions and terminals.
    `resumed` says whether this ``initialize`` continued a connection; it is false if no connection
    has the secret that the request contained. `approver` says whether the connection is an
    approver; it is sent if the request contained a token for that.
    """

    resume: str
    resumed: bool | UnsetType = UNSET
    approver: bool | UnsetType = UNSET


W = TypeVar("W", bound=Wire)


def own_meta(meta: MetaIn, into: type[W]) -> W | None:
    """Return the member `acpterm` of `meta`, decoded as `into`; None if absent.

    `meta` is the ``_meta`` of a request's params.

    Raises RpcError (-32602) if the member is invalid.
    """
    own = None if meta is None else meta.get(OWN)
    if own is None or bytes(own) == b"null":
        return None
    return decode(own, into, f"params._meta.{OWN}")
