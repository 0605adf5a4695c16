"""The records that a worker stores for the next worker, and how they are encoded.

A record is encoded as msgpack: an array of the record's version and a map of its fields. Increase
the version only if a worker could misread the record otherwise: a new field with a default needs no
new version. Fields that this version does not know are ignored. Older versions are read; newer
versions are refused (`StateVersionError`).

A field `…_at` is in seconds of the boot clock, which cannot be set and is the same for all workers.
A field `…_time` is in seconds since 1970, for display.
"""

import math
from typing import Annotated, ClassVar, Final, Self, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from acpterm import __version__
from acpterm.acp.agent_meta import ResourcesParams
from acpterm.acp.approvals import ApproverKind
from acpterm.config.profiles import Limits
from acpterm.config.providers import Isolation
from acpterm.policy.questions import Answer
from acpterm.pty.limits import RESOURCES, Cause, ResourceLimits
from acpterm.recording.recorder import RecordingRecord
from acpterm.runtime.exec_context import ExecContext
from acpterm.terminal.remote import RemoteProgram
from acpterm.terminal.spec import TerminalSpec
from acpterm.terminal.status import EndedBy
from acpterm.undo.scan import FILES_ONLY

RequestId: TypeAlias = int | str
"""The JSON-RPC id of a request that can be recognised when it is repeated: never null."""

# A larger environment is not stored: execve(2) could not pass it to any program.
_ENV_BYTES_MAX: Final = 6 * 1024 * 1024
_encoder: Final = msgspec.msgpack.Encoder()
_versioned: Final = msgspec.msgpack.Decoder(tuple[Annotated[int, Meta(ge=1)], Raw])


class StateError(Exception):
    """A record cannot be read; the message says why."""


class StateVersionError(StateError):
    """A newer version of acpterm wrote the record; the message says what to do."""


class Record(Struct, kw_only=True, omit_defaults=True):
    """The base of the records that are stored under a key. All others are parts of such records."""

    VERSION: ClassVar[int] = 1
    KIND: ClassVar[str] = ""

    def encode(self) -> bytes:
        return _encoder.encode((self.VERSION, self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Decode a record. Raises `StateVersionError` or `StateError`."""
        try:
            version, fields = _versioned.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateError(f"the record of a {cls.KIND} is damaged: {error}") from error
        if version > cls.VERSION:
            raise StateVersionError(
                f"the record of a {cls.KIND} is state of version {version}; this is acpterm "
                f"{__version__}, which reads versions up to {cls.VERSION}: start the newer version "
                "of acpterm"
            )
        try:
            return msgspec.msgpack.decode(fields, type=cls)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise StateError(f"the record of a {cls.KIND} is damaged: {error}") from error


class ContextRecord(Struct, kw_only=True, omit_defaults=True):
    """An execution context. Its text need not be valid UTF-8: see `pack_text`."""

    env: dict[bytes, bytes]
    cwd: bytes
    umask: int
    rlimits: list[tuple[int, int, int]]

    @classmethod
    def from_context(cls, context: ExecContext) -> Self | None:
        """Return the record of a context; None if its environment is too large for any program."""
        env = {pack_text(name): pack_text(value) for name, value in context.env.items()}
        if sum(len(name) + len(value) for name, value in env.items()) > _ENV_BYTES_MAX:
            return None
        return cls(
            env=env, cwd=pack_text(context.cwd), umask=context.umask, rlimits=list(context.rlimits)
        )

    def to_context(self) -> ExecContext:
        return ExecContext(
            env={unpack_text(name): unpack_text(value) for name, value in self.env.items()},
            cwd=unpack_text(self.cwd),
            umask=self.umask,
            rlimits=tuple(self.rlimits),
        )


class HostRecord(Record, kw_only=True, omit_defaults=True):
    """The state of the whole daemon: start time, execution context, last connection's number."""

    KIND: ClassVar[str] = "daemon"

    started_at: float
    context: ContextRecord | None = None
    """The execution context that the daemon was started with."""
    connections: int = 0
    """The number of the agents' connection that was opened last. Its id is `c` and the number."""


class AuditRecord(Record, kw_only=True, omit_defaults=True):
    """The audit log's progress: `audit.log.LogProgress`."""

    KIND: ClassVar[str] = "audit log"

    worker: int
    seq: int
    at: float
    inherited: int = 0
    inherited_from: float = 0.0


class ListenRecord(Record, kw_only=True, omit_defaults=True):
    """A socket that acpterm has bound; the socket's descriptor is stored with the record."""

    KIND: ClassVar[str] = "listening socket"

    path: str
    inode: tuple[int, int]
    """Device and inode of the socket file, which the daemon removes at its end."""


class HttpRecord(Record, kw_only=True, omit_defaults=True):
    """The HTTP server's listening socket; the socket's descriptor is stored with the record."""

    KIND: ClassVar[str] = "HTTP server"

    setting: str | None = None
    """The value of the setting `http` when the socket was bound. If the setting has another value
    now, the socket is closed."""


class _Rights(Record, kw_only=True, omit_defaults=True):
    """What decides which commands an agent's connection may run, and how the user is asked."""

    programs: list[str] = []
    """The names of the agent's program, by which its profile is selected."""
    directory: bytes | None = None
    """The directory that the agent works in, by which its profile is selected."""
    approver: ApproverKind | None = None
    """The kind of client that asks the user the connection's questions; None if no client does."""
    profile: str | None = None
    """The profile that the user has chosen for the connection; None if the user has chosen none."""
    requested_profiles: list[str] = []
    """The profiles that the client has requested for the connection, in addition."""


class RightsRecord(_Rights, kw_only=True, omit_defaults=True):
    """The rights of a connection when it created a terminal, in the terminal's record.

    When the keeper dies, only the records of terminals may survive, since each one is also in the
    header of the terminal's ring. The connection is then restored from them.
    """

    workspace: bytes | None = None
    """The directory in which the session's programs may write; None if no client has set it."""


class ConnectionRecord(_Rights, kw_only=True, omit_defaults=True):
    """An agent's connection: its secret, its rights, and the processes that use it."""

    KIND: ClassVar[str] = "connection"

    secret: str
    """The secret with which a client can resume the connection."""
    agent: str | None = None
    """The name that the agent sent in `initialize`; None if it sent none."""
    context: ContextRecord | None = None
    """The agent's execution context. None if its environment is too large for any program: the
    daemon's context is used then."""
    holders: list[tuple[int, float]] = []
    """The processes that use the connection, as pid and start time: see `AgentConnection`."""
    starts: list[float] = []
    """When terminals were started: see `host.guard`."""


class AgentSessionRecord(Record, kw_only=True, omit_defaults=True):
    """A session of an agent's connection: its directories, and the user's decisions for it."""

    KIND: ClassVar[str] = "session"

    id: str
    cwd: bytes | None = None
    """The directory of `terminal/create` requests without `cwd`; None if it was not set."""
    cancelled: int = 0
    """How many prompt turns of the session were cancelled."""
    released: list[str] = []
    """The ids of the terminals that were released most recently, oldest first."""
    workspace: bytes | None = None
    """The directory in which the session's programs may write; None if no client has set it."""
    allowed: list[list[str]] = []
    """What the user has allowed for the session: each list is a directory, then a prefix."""
    rejected: list[list[str]] = []
    """The prefixes of commands that the user has rejected for the session."""
    rejected_commands: list[bytes] = []
    """The SHA-256 of commands that the user has rejected for the session."""


class ApprovalRecord(Record, kw_only=True, omit_defaults=True):
    """A question to the user (`policy.questions.Question`), until the agent's request has ended."""

    KIND: ClassVar[str] = "question"

    connection: str
    request: RequestId
    session: str
    agent: str | None = None
    command: str
    directory: bytes
    level: str
    reason: str
    prefix: list[str] | None = None
    fingerprint: bytes
    asked_time: float
    can_undo: bool = False
    deadline_at: float | None = None
    """The time at which the command is refused without an answer; None for never."""
    answer: Answer | None = None
    """None if the question was not answered yet."""


class ToolCallRecord(Record, kw_only=True, omit_defaults=True):
    """A tool call of a session: see `sessions.tool_calls.RecordedToolCall`.

    The values in `fields` and `meta` are raw JSON.
    """

    KIND: ClassVar[str] = "tool call"

    id: str
    changed: int
    """The number of the tool call's last change, counted over all tool calls of the session."""
    fields: dict[str, bytes] = {}
    meta: dict[str, bytes] = {}
    terminals: list[str] = []


class LimitsRecord(Limits, frozen=True, forbid_unknown_fields=False, kw_only=True):
    """The limits of a terminal."""

    unenforced: list[str] = msgspec.field(default_factory=list)
    """A sentence about each limit that was set, but cannot be enforced on this machine."""

    @classmethod
    def from_limits(cls, limits: Limits) -> Self | None:
        """Return the limits that hold while the program runs; None if none is set."""
        values = {name: getattr(limits, name) for name in ("idle", *RESOURCES)}
        return None if set(values.values()) == {None} else cls(**values)

    @property
    def resources(self) -> ResourceLimits:
        values = {name: getattr(self, name) for name in RESOURCES}
        return {name: value for name, value in values.items() if value is not None}


class TerminalRecord(Record, kw_only=True, omit_defaults=True):
    """A terminal: its settings, owner, creation and end. Stored until the terminal is forgotten."""

    KIND: ClassVar[str] = "terminal"

    command: str
    cwd: bytes
    cwd_gone: bytes | None = None
    """The directory of the session if it was gone: `cwd` is then a parent of it."""
    name: str | None = None
    created_time: float
    started_at: float
    cols: int
    rows: int
    """`cols` and `rows` are the size that the terminal has while no window is attached."""
    limit: int
    """How many bytes of text are retained."""
    ring_size: int
    """How many bytes of raw output are retained."""
    view: str = "text"
    """The default format of the output: "text", "raw" or "screen"."""
    lifetime_end: float | None = None
    """When the program is killed because of its timeout, on the boot clock; None for never."""
    lifetime_limit: tuple[str, float] | None = None
    """The name and the value of the limit that has set `lifetime_end`: `wall`, in seconds, or
    `timeoutMs`, in milliseconds."""
    limits: LimitsRecord | None = None
    """The limits of an agent's terminal; None if it has none."""
    is_users: bool = False
    """Whether the user owns the terminal."""
    is_given: bool = False
    """Whether the user owns the terminal only because its agent has given it to the user."""
    connection: str | None = None
    """The id of the agent's connection that created the terminal; None if the user did."""
    secret: str | None = None
    """The secret of the agent's connection. It is here too, because only the terminals' records
    survive the death of the keeper."""
    rights: RightsRecord | None = None
    """The rights of the agent's connection when it created the terminal."""
    agent: str | None = None
    session: str | None = None
    """The id of the session that created the terminal; None if the user did."""
    request: RequestId | None = None
    """The JSON-RPC id of the create request, by which a repetition of it is recognised. None once a
    later request has named the terminal: the client has then received the response."""
    is_held: bool = True
    """Whether the agent may still use the terminal's id: it has not released the id."""
    ends_background: bool = False
    """Whether the terminal's release ends what its program has left running."""
    is_left: bool = False
    """Whether the agent has released the terminal, and what its program has left running continues.
    """
    killed_by: EndedBy | None = None
    """Why the terminal was killed; None if it was not killed. `killed_at` is when."""
    killed_at: float | None = None
    release_at: float | None = None
    """When the terminal will be released because its turn was cancelled; None if it will not."""
    released_by: EndedBy | None = None
    released_time: float | None = None
    released_at: float | None = None
    tool_calls: list[str] = []
    """The ids of the tool calls that showed the terminal when it was released."""
    recording: str | None = None
    """The path of the recording; None if there is none."""
    is_removed_at_end: bool = False
    """Whether the terminal is forgotten when its program exits."""
    recorded: RecordingRecord | None = None
    """The progress of the recording; None if the recording has ended."""
    unkept: str | None = None
    """Why `acpterm undo` cannot bring back what was there before the program, or only files;
    "" if it can, and None if it need not."""
    provider: str = "local"
    """The name of the provider that runs the program."""
    isolation: Isolation = "none"
    """The isolation of that provider."""
    host: str | None = None
    """The name of the host that the program runs on; None for this host, or if not known yet."""
    clean_up_token: str | None = None
    """What `Provider.clean_up` needs once the terminal is closed; None if nothing is left to do."""
    level: str | None = None
    """The level of the command that an agent requested: `safe`, `unknown` or `dangerous`."""
    loss: str | None = None
    """What the command was judged to lose: its kind, and the reason."""

    def cause_of(self, by: EndedBy | None) -> Cause | None:
        """Return the limit to report as the cause of an end `by`; None if that has no limit."""
        if by is EndedBy.TIMEOUT and self.lifetime_limit is not None:
            return Cause(*self.lifetime_limit)
        if by is EndedBy.IDLE and self.limits is not None and self.limits.idle is not None:
            return Cause("idle", self.limits.idle)
        return None

    def spec(self, remote: RemoteProgram | None) -> TerminalSpec:
        """Return the parameters with which the pool creates the terminal."""
        end = self.lifetime_end
        return TerminalSpec(
            size=(self.cols, self.rows),
            limit=self.limit,
            ring_size=self.ring_size,
            lifetime=math.inf if end is None else end - self.started_at,
            lifetime_cause=self.cause_of(EndedBy.TIMEOUT),
            view=self.view,
            remote=remote,
        )

    @property
    def is_kept(self) -> bool:
        """Whether `acpterm undo` can bring back what was there before, or its files."""
        return self.unkept in ("", FILES_ONLY)


class LaunchRecord(Record, kw_only=True, omit_defaults=True):
    """The command, environment and execution context with which the user created a terminal.

    `acpterm restart TERMINAL` starts the same program from this record.
    """

    KIND: ClassVar[str] = "launch"

    command: bytes
    args: list[bytes] | None = None
    env: list[tuple[bytes, bytes | None]] = []
    """The variables of the request, which override others of the same name; None removes one."""
    context: ContextRecord
    resources: ResourcesParams | None = None
    """What the request asked of a cluster."""

    @property
    def words(self) -> tuple[str, list[str] | None]:
        """The command and its arguments."""
        args = None if self.args is None else [unpack_text(word) for word in self.args]
        return unpack_text(self.command), args

    @property
    def variables(self) -> dict[str, str | None]:
        """The variables of the request."""
        return {
            unpack_text(name): None if value is None else unpack_text(value)
            for name, value in self.env
        }


def pack_text(text: str) -> bytes:
    """Encode text from the system: a path, argument or variable that need not be valid UTF-8."""
    # Python represents each byte that is not UTF-8 by a lone surrogate.
    return text.encode("utf-8", "surrogatepass")


def unpack_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")
