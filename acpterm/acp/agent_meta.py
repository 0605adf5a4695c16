"""The member `acpterm` of ``_meta``: what acpterm adds to the messages between agent and host.

To add an option to ``terminal/create``, extend `CreateMeta`.
"""

from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, UnsetType, field

from acpterm.acp.agent_api import Cells, Format, Positive
from acpterm.acp.base import MetaIn, Wire
from acpterm.acp.lenient import decode
from acpterm.acp.terminal import TerminalId

OWN: Final = "acpterm"
"""The name of the member of ``_meta`` that belongs to acpterm."""

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
"""What ended a program. `status.EndedBy` of `acpterm.terminal` describes the values."""


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
