"""The records that a worker leaves to its successor, and how they are encoded.

Wire: msgpack, an array of the record's version and a map of its fields. A version is raised when a
successor could misread the record otherwise; a new field with a default needs no new version. Older
versions are read, newer ones are refused (`StateVersionError`).

Times: `…_at` on the boot clock, which goes on over a worker's death and is not set; `…_time`
in seconds since 1970, for display.
"""

from typing import Annotated, ClassVar, Final, Self, TypeAlias

import msgspec
from msgspec import Meta, Raw, Struct

from acpterm import __version__
from acpterm.runtime.exec_context import ExecContext

RequestId: TypeAlias = int | str
"""The JSON-RPC id of a request that can be recognised: any but null."""

_EndedBy: TypeAlias = str
# Bytes of an environment that is stored: execve(2) passes no more to any program.
_ENV_BYTES_MAX: Final = 6 * 1024 * 1024
_encoder: Final = msgspec.msgpack.Encoder()
_versioned: Final = msgspec.msgpack.Decoder(tuple[Annotated[int, Meta(ge=1)], Raw])


class StateError(Exception):
    """A record cannot be read; the message says why."""


class StateVersionError(StateError):
    """A newer acpterm wrote the record; the message says what to do."""


class Record(Struct, kw_only=True, omit_defaults=True):
    """A record. Unknown fields are ignored."""

    VERSION: ClassVar[int] = 1
    KIND: ClassVar[str] = ""

    def encode(self) -> bytes:
        """Return the record as the store holds it."""
        return _encoder.encode((self.VERSION, self))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Return a record. Raises `StateVersionError` for a newer one, `StateError` for garbage."""
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
    """An execution context. Its text need not be UTF-8: see `pack_text`."""

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
        """Return the context that was recorded."""
        return ExecContext(
            env={unpack_text(name): unpack_text(value) for name, value in self.env.items()},
            cwd=unpack_text(self.cwd),
            umask=self.umask,
            rlimits=tuple(self.rlimits),
        )


class HostRecord(Record, kw_only=True, omit_defaults=True):
    """The daemon as a whole."""

    KIND: ClassVar[str] = "daemon"

    started_at: float
    context: ContextRecord | None = None
    """The execution context that the daemon was started with."""
    connections: int = 0
    """How many connections of agents there have been: the number of the newest."""


class ListenRecord(Record, kw_only=True, omit_defaults=True):
    """A socket that was bound; its descriptors are stored with the record."""

    KIND: ClassVar[str] = "listening socket"

    path: str
    inode: tuple[int, int]
    """Device and inode of the socket file, which is removed at the end."""


class ConnectionRecord(Record, kw_only=True, omit_defaults=True):
    """An agent's connection."""

    KIND: ClassVar[str] = "connection"

    secret: str
    agent: str | None = None
    context: ContextRecord | None = None
    """None for one that is too large for any program: the daemon's own is used then."""
    holders: list[tuple[int, float]] = []
    """Pid and start time of the processes at its other end: the client, and the agent behind it."""


class SessionRecord(Record, kw_only=True, omit_defaults=True):
    """A session of an agent's connection."""

    KIND: ClassVar[str] = "session"

    id: str
    cwd: bytes | None = None
    cancelled: int = 0
    released: list[str] = []
    """The ids of terminals that were released, the newest ones, oldest first."""


class ToolCallRecord(Record, kw_only=True, omit_defaults=True):
    """A tool call of a session: its members as JSON."""

    KIND: ClassVar[str] = "tool call"

    id: str
    changed: int
    """Counts the changes of a session's tool calls: the order in which they were last changed."""
    fields: dict[str, bytes] = {}
    meta: dict[str, bytes] = {}
    terminals: list[str] = []


class RecordingRecord(Struct, kw_only=True, omit_defaults=True):
    """How far a recording is: what is behind `size` bytes of the file is written again."""

    position: int
    """The output before it is in the file."""
    size: int
    has_exit: bool = False
    """Whether the file says how the program ended."""


class TerminalRecord(Record, kw_only=True, omit_defaults=True):
    """A terminal, from its spawn until it is forgotten."""

    KIND: ClassVar[str] = "terminal"

    command: str
    cwd: bytes
    name: str | None = None
    created_time: float
    started_at: float
    cols: int
    rows: int
    """The size that it has while no window is attached."""
    limit: int
    ring_size: int
    view: str = "text"
    lifetime_end: float | None = None
    """When it is killed, on the boot clock; None for never."""
    is_users: bool = False
    connection: str | None = None
    secret: str | None = None
    """Of the connection: a keeper that dies leaves terminals' records alone, in their rings."""
    agent: str | None = None
    session: str | None = None
    """The session that created it; None for one that the user created."""
    request: RequestId | None = None
    """The request that created it, until a later request of its connection names it."""
    is_held: bool = True
    """Whether its session may name it: until it releases it."""
    killed_by: _EndedBy | None = None
    killed_at: float | None = None
    release_at: float | None = None
    """When it is released unless its agent does so before, after a cancelled turn."""
    released_by: _EndedBy | None = None
    released_time: float | None = None
    released_at: float | None = None
    tool_calls: list[str] = []
    """The ids of the tool calls that showed it when it was released."""
    recording: str | None = None
    """The path of its recording."""
    is_removed_at_end: bool = False
    """Whether it is forgotten when its program has ended."""
    recorded: RecordingRecord | None = None
    """How far that is; None if nothing more is written to it."""


class LaunchRecord(Record, kw_only=True, omit_defaults=True):
    """What a terminal of the user's was created with, to create it again."""

    KIND: ClassVar[str] = "launch"

    command: bytes
    args: list[bytes] | None = None
    env: list[tuple[bytes, bytes]] = []
    """The variables that were given with the command: they win over what the daemon sets."""
    context: ContextRecord


def pack_text(text: str) -> bytes:
    """Encode text of the system, which may hold bytes that are not UTF-8 as lone surrogates."""
    return text.encode("utf-8", "surrogatepass")


def unpack_text(data: bytes) -> str:
    """Decode what `pack_text` has encoded."""
    return data.decode("utf-8", "surrogatepass")
