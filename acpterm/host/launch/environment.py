"""The environment and the resource limits of a terminal's program."""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from acpterm.acp.agent_meta import InitializeMeta, own_meta
from acpterm.acp.initialize import InitializeRequest
from acpterm.host.launch.validation import check_absolute, check_environment, check_size
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, excerpt
from acpterm.pty.tracking import marks
from acpterm.runtime.exec_context import RLIMITS, ExecContext

# Variables that only concern the daemon, or that are wrong in a terminal of another size.
_NOT_INHERITED: Final = (
    *marks.DETACHED,
    # bash would read this file before each line.
    "BASH_ENV",
    "COLUMNS",
    "LINES",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)
_LIMIT_MAX: Final = (1 << 63) - 1
_ALWAYS_SET: Final = {"TERM": "xterm-256color"}
# Pagers are disabled, because an agent's terminal has no user to turn pages. The other variables
# are for tools that ignore PAGER, or prefer their own variable.
_PAGER_VARIABLES: Final = (
    "PAGER",
    "AWS_PAGER",
    "BAT_PAGER",
    "DELTA_PAGER",
    "GH_PAGER",
    "GIT_PAGER",
    "MANPAGER",
    "SYSTEMD_PAGER",
)
# LESS is for programs that ignore these variables and start less: with `F`, less quits at once if
# the text fits on the screen.
_UNATTENDED: Final = {**dict.fromkeys(_PAGER_VARIABLES, "cat"), "LESS": "FRX"}


def terminal_environment(
    context: ExecContext,
    more: Iterable[tuple[str, str]],
    *,
    attended: bool = False,
    agent_env: Mapping[str, str] = MappingProxyType({}),
) -> dict[str, str]:
    """Return the environment of a terminal's program.

    It has the variables of `context`, except those that are wrong in a new terminal, such as
    `LINES`. `TERM` is set. The variables in `more` are added, and override all others.

    `attended` is true if the user creates the terminal, and false if an agent does. For an agent,
    pagers are disabled, and the variables in `agent_env` (a setting) are added.
    """
    env = {name: value for name, value in context.env.items() if name not in _NOT_INHERITED}
    env.update(_ALWAYS_SET)
    if env.get("SHLVL", "0") == "0":
        # The bash of Debian reads ~/.bashrc if it seems to be the first shell after ssh.
        env["SHLVL"] = "1"
    if not attended:
        env.update(_UNATTENDED)
        env.update(agent_env)
    env.update(more)
    return env


def limits_by_name(rlimits: Mapping[str, tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Convert resource limits by name to `ExecContext.rlimits`: number, soft limit, hard limit.

    `rlimits`, from the wire, maps a name without `RLIMIT_`, such as `NOFILE`, to the soft and the
    hard limit; -1 is no limit. Unknown names are skipped. Raises `RpcError` (-32602) for a limit
    that no process can have.
    """
    for name, (soft, hard) in rlimits.items():
        for value in (soft, hard):
            if not -1 <= value <= _LIMIT_MAX:
                raise RpcError(
                    INVALID_PARAMS,
                    f"rlimits.{excerpt(name)} has {excerpt(str(value))}: a limit is -1, for none, "
                    f"or 0 to {_LIMIT_MAX}",
                )
        if hard != -1 and (soft == -1 or soft > hard):
            raise RpcError(
                INVALID_PARAMS,
                f"rlimits.{excerpt(name)} is [{soft}, {hard}]: the soft limit, which comes first, "
                "must not be above the hard one (-1 is none, which is above all)",
            )
    return tuple((RLIMITS[name], *both) for name, both in rlimits.items() if name in RLIMITS)


def requested_context(context: ExecContext, params: InitializeRequest) -> ExecContext:
    """Return `context`, changed as an `initialize` request asks in its `_meta`.

    Raises `RpcError` (-32602) for a relative directory, and for an environment or a resource limit
    that no program can have.
    """
    options = own_meta(params.meta, InitializeMeta)
    requested = options and (options.context or options.asker)
    if not requested:
        return context
    if requested.cwd is not None:
        check_absolute(requested.cwd)
    if requested.env is not None:
        check_environment(requested.env.items())
        check_size("", None, requested.env, context.rlimits)
    return context._replace(
        env=context.env if requested.env is None else requested.env,
        cwd=context.cwd if requested.cwd is None else requested.cwd,
        umask=context.umask if requested.umask is None else requested.umask,
        rlimits=context.rlimits if requested.rlimits is None else limits_by_name(requested.rlimits),
    )
