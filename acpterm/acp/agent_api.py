"""acpterm's own methods for agents, ``_acpterm/…``, and its own member of ``_meta``.

The rule: these are decoded strictly. An agent that uses them knows acpterm, and an error that names
a bad value serves it better than leniency. Null counts as absent.

Times are in milliseconds, sizes in bytes, positions in bytes of the terminal's stream since
its beginning.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from acpterm.acp.base import Wire
from acpterm.acp.lenient import decode
from acpterm.acp.terminal import SessionId, TerminalExitStatus, TerminalId
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, excerpt

OWN: Final = "acpterm"
"""The name of acpterm's member of ``_meta``."""

EXTENSION_METHODS: Final = (
    "_acpterm/terminal/read",
    "_acpterm/terminal/write",
    "_acpterm/terminal/resize",
    "_acpterm/terminal/signal",
    "_acpterm/session/set",
)
"""acpterm's own methods for agents."""

EXTENSIONS: Final[dict[str, list[str]]] = {
    "methods": list(EXTENSION_METHODS),
    "createMeta": ["cols", "rows", "timeoutMs", "shell", "format"],
    "outputMeta": ["waitingForInput"],
    "exitStatusMeta": ["endedBy", "wallMs", "cpuMs", "maxRssBytes"],
}
"""What a host offers agents besides ACP v1, advertised in ``clientCapabilities._meta``."""

Format: TypeAlias = Literal["text", "raw", "screen"]
EndedBy: TypeAlias = Literal["exited", "agent", "user", "timeout", "lost", "disconnect"]

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Cells = Annotated[int, Meta(ge=1, le=10000)]


class ReadRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/read``: read the output since a position.

    Without `since`, read from the oldest retained byte. With `wait_ms`, if there is no output yet,
    wait that long for some.
    """

    session_id: SessionId
    terminal_id: TerminalId
    since: Natural | None = None
    max_bytes: Positive | None = None
    format: Format | None = None
    wait_ms: Natural | None = None


class ReadResponse(Wire):
    """The response to ``_acpterm/terminal/read``.

    `position` is the position to continue from. `lost` counts the bytes after `since` that were
    dropped. `data` is text, or bytes in base64 if `encoding` says so.
    """

    data: str
    position: int
    lost: int
    encoding: Literal["base64"] | UnsetType = UNSET
    exit_status: TerminalExitStatus | UnsetType = UNSET


class WriteRequest(Wire):
    """``_acpterm/terminal/write``: write `data` as keyboard input."""

    session_id: SessionId
    terminal_id: TerminalId
    data: Annotated[str, Meta(description="what to type")]


class WriteResponse(Wire):
    """The response to ``_acpterm/terminal/write``: the number of bytes accepted."""

    written: int


class ResizeRequest(Wire):
    """``_acpterm/terminal/resize``: set the size of a terminal."""

    session_id: SessionId
    terminal_id: TerminalId
    cols: Cells
    rows: Cells


class SignalRequest(Wire):
    """``_acpterm/terminal/signal``: send a signal, by its name such as ``SIGINT``."""

    session_id: SessionId
    terminal_id: TerminalId
    signal: Annotated[str, Meta(description="the name of a signal, such as SIGINT")]


class SetSessionRequest(Wire):
    """``_acpterm/session/set``: set the directory for commands without a ``cwd``."""

    session_id: SessionId
    cwd: Annotated[str, Meta(description="an absolute path")]


class CreateMeta(Wire, omit_defaults=True):
    """``_meta.acpterm`` of ``terminal/create``."""

    cols: Cells | None = None
    rows: Cells | None = None
    timeout_ms: Positive | None = None
    shell: bool | None = None
    format: Format | None = None


class OutputMeta(Wire):
    """``_meta.acpterm`` of the response to ``terminal/output``, while the command runs.

    It says whether the command waits for input, and is absent if that cannot be known.
    """

    waiting_for_input: bool


class ExitMeta(Wire):
    """``_meta.acpterm`` of an exit status."""

    ended_by: EndedBy
    wall_ms: int
    cpu_ms: int | UnsetType = UNSET
    max_rss_bytes: int | UnsetType = UNSET


class ExecContext(Wire, omit_defaults=True):
    """The environment, directory, umask and limits of a client that did not start the host.

    The host's own may differ, so the client sends those with which its commands are to run.
    `umask` is a number (18 is 0o022). `rlimits` has soft and hard limits by name without
    ``RLIMIT_``, such as ``NOFILE``; -1 is unlimited.
    """

    env: dict[str, str] | None = None
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None
    umask: Annotated[int, Meta(ge=0, le=0o777)] | None = None
    rlimits: dict[str, tuple[int, int]] | None = None


class InitializeMeta(Wire, omit_defaults=True):
    """``_meta.acpterm`` of ``initialize``.

    `relay` says that the connecting process relays for its parent, which is the agent. `asker` is
    the former name of `context`, and is used if `context` is absent.
    """

    context: ExecContext | None = None
    asker: ExecContext | None = None
    relay: bool | None = None
    resume: Annotated[str | None, Meta(description="the secret of a connection that was lost")] = (
        None
    )


class ResumeMeta(Wire):
    """``_meta.acpterm`` of the response to ``initialize``, for an agent.

    `resume` is a secret. If this connection is lost, a later connection that sends the secret in
    its ``initialize`` takes over its sessions and terminals. `resumed` is the outcome of such a
    request: false if nothing is left of the lost connection.
    """

    resume: str
    resumed: bool | UnsetType = UNSET


W = TypeVar("W", bound=Wire)


def own_meta(
    meta: Mapping[str, Any] | Raw | UnsetType | None,
    into: type[W],
    where: str = "params._meta",
) -> W | None:
    """Return acpterm's own member of a ``_meta``; None if it is absent.

    Raises RpcError (-32602) if the member is invalid. A `meta` that is not an object counts as
    empty.
    """
    if isinstance(meta, Raw):
        try:
            meta = msgspec.json.decode(meta, type=dict[str, Raw])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
    if meta is None or isinstance(meta, UnsetType) or meta.get(OWN) is None:
        return None
    own = meta[OWN]
    raw = own if isinstance(own, Raw) else Raw(msgspec.json.encode(own))
    if bytes(raw) == b"null":
        return None
    if bytes(memoryview(raw)[:1]) != b"{":
        message = f"{where}.{OWN} is {excerpt(raw)}: it must be an object"
        raise RpcError(INVALID_PARAMS, message)
    return decode(raw, into, f"{where}.{OWN}")
