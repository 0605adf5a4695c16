"""The member `acpterm` of ``_meta``: what acpterm adds to the messages between agent and host.

`CreateMeta` has the options of ``terminal/create``. An agent's member is decoded strictly: an
invalid value is an error that names the value, because an agent that sends the member is written
for acpterm. A null member is treated as absent.
"""

from typing import Annotated, Final, Literal, TypeAlias, TypeVar

from msgspec import UNSET, Meta, UnsetType

from acpterm.acp.agent_api import EXTENSION_METHODS, Cells, Format, Positive, StoppedProgram
from acpterm.acp.base import MetaIn, Wire
from acpterm.acp.lenient import decode
from acpterm.acp.terminal import EnvVariable, TerminalId
from acpterm.config.encodings import Encoding

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
"""What ended a program. `acpterm.terminal.status.EndedBy` describes each value."""


BackgroundLife: TypeAlias = Literal["session", "terminal"]
"""How long the background of a command may run: see `CreateMeta`."""


class BackgroundProcess(Wire):
    """A process that runs on after the command that has started it has exited.

    `command` is its command line, shortened. `ports` are the TCP ports on which it listens.
    """

    pid: int
    command: str
    ports: list[int]


class ResourcesParams(Wire, omit_defaults=True, forbid_unknown_fields=True):
    """The resources that a create request asks a cluster for, in place of those in the settings.

    The values are as Slurm writes them: `time` is minutes or ``HOURS:MINUTES:SECONDS``, `memory`
    such as ``4G``, and `gpus` such as ``1`` or ``a100:2``. Other members are an error.
    """

    partition: str | None = None
    account: str | None = None
    time: str | None = None
    cpus: Positive | None = None
    memory: str | None = None
    gpus: str | None = None


class EnvMeta(Wire, omit_defaults=True):
    """The member ``acpterm`` in ``_meta`` of a variable in `env`.

    With `unset`, the variable is removed from the program's environment, whatever its `value` is.
    """

    unset: bool = False


def variable_of(item: EnvVariable) -> tuple[str, str | None]:
    """Return the name and the value of a variable; None removes it."""
    own = own_meta(item.meta, EnvMeta)
    return item.name, None if own is not None and own.unset else item.value


class CreateOptions(Wire, kw_only=True, omit_defaults=True):
    """The options that ``terminal/create`` of agents and of the user have in common."""

    cols: Cells | None = None
    rows: Cells | None = None
    name: str | None = None
    provider: str | None = None
    resources: ResourcesParams | None = None
    stdin: Annotated[str | None, Meta(description="an absolute path")] = None


class CreateMeta(CreateOptions, kw_only=True, omit_defaults=True):
    """``_meta.acpterm`` of a ``terminal/create`` request: options that ACP does not have.

    The terminal has `cols` columns and `rows` rows. The program is killed after `timeout_ms`
    milliseconds. `shell` is true if `command` is shell text, and false if it is a program; by
    default, the host decides. `format` is the form in which ``terminal/output`` returns the output.
    `provider` requests that the program runs in a stricter isolation than the user has selected
    (`landlock`, `bubblewrap`, `podman` or `docker`), or in a place that the user's profile lists,
    such as `ssh:build1`. `name` is a name for the terminal; if it ends with ``-#``, the ``#`` is
    replaced by a number with which no terminal has had the name. `resources` are requested from the
    cluster on which the program runs; elsewhere than on a cluster, they are an error. `cwd_bytes`
    is the working directory as base64, for a path that is not UTF-8; ``cwd`` is then ignored.
    `background` says how long what the command leaves in the background may run on after
    ``terminal/release``: `session`, until the connection ends, or `terminal`, not at all. It does
    not help an agent against a user who has set `background` to `terminal`. `encoding` is that of
    the program's output and input, instead of the user's setting. `stdin` is the absolute path of a
    named pipe that becomes the program's standard input instead of the terminal; containers and
    places do not support it.
    """

    timeout_ms: Positive | None = None
    shell: bool | None = None
    format: Format | None = None
    cwd_bytes: bytes | None = None
    background: BackgroundLife | None = None
    encoding: Encoding | None = None


class CreatedMeta(Wire):
    """``_meta.acpterm`` of a ``terminal/create`` response.

    `provider` says where the program runs, and `isolation` how it is isolated there. `level` is the
    level of the command. `name` is the name of the terminal, if a name was requested. `host` is the
    host that the program runs on, if it is not this one. `queued` is true if a cluster has not
    started the program yet. If the session's directory is gone, `cwd_gone` is its path, and `cwd`
    the nearest parent, in which the program runs.
    """

    provider: str
    isolation: Literal["none", "sandbox", "container"]
    level: str | None
    name: str | UnsetType = UNSET
    host: str | UnsetType = UNSET
    queued: bool | UnsetType = UNSET
    cwd: str | UnsetType = UNSET
    cwd_gone: str | UnsetType = UNSET


class OutputOptions(Wire):
    """``_meta.acpterm`` of a ``terminal/output`` request: whether to send `beginning`."""

    beginning: bool = False


class OutputMeta(Wire):
    """``_meta.acpterm`` of a ``terminal/output`` response: whether the program waits for input.

    `waiting_for_input` is sent only while the program runs, and only if acpterm can determine
    whether the program waits. `waiting_program` says which program waits, and on which file if it
    is an editor or pager: ``vim waits on COMMIT_EDITMSG``, ``sh waits for input``. While a cluster
    has no room for the program yet, `queued` is sent instead, and is true. `stopped` is sent while
    a program is stopped. Once the program has exited, `background` and `background_omitted` are
    sent as in an exit status. If the output is truncated, `total_lines` is the number of all its
    line ends, and `beginning` the text of its first 8 KiB, if the request has asked for it; both
    are absent if they are not known.
    """

    waiting_for_input: bool | UnsetType = UNSET
    waiting_program: str | UnsetType = UNSET
    queued: bool | UnsetType = UNSET
    stopped: StoppedProgram | UnsetType = UNSET
    background: list[BackgroundProcess] | UnsetType = UNSET
    background_omitted: int | UnsetType = UNSET
    beginning: str | UnsetType = UNSET
    total_lines: int | UnsetType = UNSET


class ExitFacts(Wire, kw_only=True):
    """The members in which the exits of agents' and of the user's methods agree."""

    wall_ms: int
    limit: str | UnsetType = UNSET
    limit_value: float | UnsetType = UNSET


class ExitMeta(ExitFacts, kw_only=True):
    """``_meta.acpterm`` of an exit status: what ended the program, and the resources it used.

    `wall_ms` is the time from start to end, `cpu_ms` the CPU time (absent if unknown), and
    `max_rss_bytes` the peak memory (0 if unknown). If a limit ended the program, `limit` is the
    name of the limit, and `limit_value` its value in bytes (`memory`, `file_size`), seconds
    (`idle`, `wall`) or milliseconds (`timeoutMs`). `host` is the host that the program ran on, if
    it is not this one. `background` are the processes that the program has left running, those with
    ports first; it is absent if there are none. If there are more than 16, `background_omitted` is
    the number of the others.
    """

    ended_by: EndedBy
    cpu_ms: int | UnsetType = UNSET
    max_rss_bytes: int | UnsetType = UNSET
    host: str | UnsetType = UNSET
    background: list[BackgroundProcess] | UnsetType = UNSET
    background_omitted: int | UnsetType = UNSET


EXTENSIONS: Final[dict[str, list[str]]] = {
    "methods": list(EXTENSION_METHODS),
    "createMeta": list(CreateMeta.__struct_encode_fields__),
    "createdMeta": list(CreatedMeta.__struct_encode_fields__),
    "outputMeta": list(OutputMeta.__struct_encode_fields__),
    "exitStatusMeta": list(ExitMeta.__struct_encode_fields__),
}
"""What a host offers agents besides ACP v1, advertised in ``clientCapabilities._meta``."""


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

    `context` is the execution context of the programs that the peer starts. `asker` is the former
    name of `context`, and is used if `context` is absent. `relay` is true if the process that
    connects (`acpterm stdio`) only relays the messages of its parent, the agent. `resume` is the
    secret of an earlier connection whose stream has ended, to continue that connection. `approver`
    is a token that makes the connection an approver, whose client asks the user (see `approvals`);
    only the user's own programs can get such a token. `profile` is the name of a profile; the
    agent's commands must satisfy this profile and the profile that the user has selected. `elicits`
    is true if the client shows questions to the user by itself; it has an effect only if the
    setting `mcp_elicitation_approves` is on.
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
    """``_meta.acpterm`` of a ``session/cancel``: the ids of the terminals to end; None: all."""

    terminals: list[TerminalId] | None = None


class ResumeMeta(Wire):
    """``_meta.acpterm`` of the host's response to an agent's ``initialize``.

    `resume` is the secret of this connection. If the stream breaks, the agent sends the secret in
    the ``initialize`` of a new stream to continue the connection, with its sessions and terminals.
    `resumed` is sent if the request contained a secret: true if this ``initialize`` continued the
    connection with that secret, and false if there is no such connection. `approver` is sent if the
    request contained a token: true if the token made the connection an approver.
    """

    resume: str
    resumed: bool | UnsetType = UNSET
    approver: bool | UnsetType = UNSET


W = TypeVar("W", bound=Wire)


def own_meta(meta: MetaIn, into: type[W]) -> W | None:
    """Return the member `acpterm` of ``_meta``; raise RpcError (-32602) if it is invalid."""
    own = None if meta is None else meta.get(OWN)
    if own is None or bytes(own) == b"null":
        return None
    return decode(own, into, f"params._meta.{OWN}")
