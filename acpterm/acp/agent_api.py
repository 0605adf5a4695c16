"""acpterm's own methods, ``_acpterm/…``, and its own member of ``_meta``.

The rule: these are read strictly. Who uses them knows acpterm, and is better off with an
error that names a bad value than without it. Null counts as absent.

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
"""The member of ``_meta`` that is ours."""

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
EndedBy: TypeAlias = Literal[
    "exited", "agent", "user", "timeout", "idle", "limit", "lost", "disconnect"
]

Natural = Annotated[int, Meta(ge=0)]
Positive = Annotated[int, Meta(ge=1)]
Cells = Annotated[int, Meta(ge=1, le=10000)]


class ReadRequest(Wire, omit_defaults=True):
    """``_acpterm/terminal/read``: what has been written since a position.

    Without `since`, from the oldest byte there is. With `wait_ms`, an answer that would be
    empty waits that long for something to read.
    """

    session_id: SessionId
    terminal_id: TerminalId
    since: Natural | None = None
    max_bytes: Positive | None = None
    format: Format | None = None
    wait_ms: Natural | None = None


class ReadResponse(Wire):
    """The answer to ``_acpterm/terminal/read``.

    `position` is where to read on; `lost` counts the bytes after `since` that are gone.
    `data` is text, or base64 of bytes if `encoding` says so.
    """

    data: str
    position: int
    lost: int
    encoding: Literal["base64"] | UnsetType = UNSET
    exit_status: TerminalExitStatus | UnsetType = UNSET


class WriteRequest(Wire):
    """``_acpterm/terminal/write``: type this."""

    session_id: SessionId
    terminal_id: TerminalId
    data: Annotated[str, Meta(description="what to type")]


class WriteResponse(Wire):
    """The answer to ``_acpterm/terminal/write``: how many bytes were taken."""

    written: int


class ResizeRequest(Wire):
    """``_acpterm/terminal/resize``."""

    session_id: SessionId
    terminal_id: TerminalId
    cols: Cells
    rows: Cells


class SignalRequest(Wire):
    """``_acpterm/terminal/signal``: a signal by its name, such as ``SIGINT``."""

    session_id: SessionId
    terminal_id: TerminalId
    signal: Annotated[str, Meta(description="the name of a signal, such as SIGINT")]


class SetSessionRequest(Wire):
    """``_acpterm/session/set``: where commands without a ``cwd`` run from now on."""

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
    """``_meta.acpterm`` of the answer to ``terminal/output``, while the command runs.

    Whether it waits for somebody to type; left out where that cannot be known.
    """

    waiting_for_input: bool


class ExitMeta(Wire):
    """``_meta.acpterm`` of an exit status."""

    ended_by: EndedBy
    wall_ms: int
    cpu_ms: int | UnsetType = UNSET
    max_rss_bytes: int | UnsetType = UNSET


class ExecContext(Wire, omit_defaults=True):
    """What a program had that asks for terminals of a host it did not start.

    `umask` is a number (18 is 0o022); `rlimits` has soft and hard limits by names without
    ``RLIMIT_``, such as ``NOFILE``, -1 for none.
    """

    env: dict[str, str] | None = None
    cwd: Annotated[str | None, Meta(description="an absolute path")] = None
    umask: Annotated[int, Meta(ge=0, le=0o777)] | None = None
    rlimits: dict[str, tuple[int, int]] | None = None


class InitializeMeta(Wire, omit_defaults=True):
    """``_meta.acpterm`` of ``initialize``.

    `relay`: whether the process that connects speaks for its parent, the agent. `asker` is the
    former name of `context`, and is read where that is absent.
    """

    context: ExecContext | None = None
    asker: ExecContext | None = None
    relay: bool | None = None
    resume: Annotated[str | None, Meta(description="the secret of a connection that was lost")] = (
        None
    )


class ResumeMeta(Wire):
    """``_meta.acpterm`` of the answer to ``initialize``, for an agent.

    `resume` is a secret: a later connection that sends it in its ``initialize`` takes the place of
    this one should it be lost, with its sessions and terminals. `resumed` answers such a request:
    false if nothing is left of that connection.
    """

    resume: str
    resumed: bool | UnsetType = UNSET


W = TypeVar("W", bound=Wire)


def own_meta(
    meta: Mapping[str, Any] | Raw | UnsetType | None,
    into: type[W],
    where: str = "params._meta",
) -> W | None:
    """Return acpterm's own member of a ``_meta``, None if there is none.

    Raises RpcError (-32602) if our member is bad. A `meta` that is no object has no members.
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
