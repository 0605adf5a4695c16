"""Whoever asked for a terminal: the environment, folder, umask and limits that it gets.

An asker is the process that ran `acpterm stdio`, or the one at the other end of a socket. Of that
one the system tells its umask, limits and folder; its environment is the daemon's own, unless it
sends another in `initialize`, as acpterm's own commands do.
"""

import contextlib
import os
import re
import resource
import sys
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from acpterm import acp
from acpterm.host.state.records import ContextRecord, pack_text, unpack_text
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, excerpt, is_utf8_encodable
from acpterm.pty.tracking import marks

# Bytes of an environment that is stored: programs can be given no more (execve(2)).
_STORED_ENV_BYTES_MAX = 6 * 1024 * 1024
# What means something to the daemon alone, or is wrong in a terminal of another size or pager.
_NOT_PASSED_ON = (
    *marks.DETACHED,
    "COLUMNS",
    "LINES",
    "LISTEN_FDNAMES",
    "LISTEN_FDS",
    "LISTEN_PID",
    "NOTIFY_SOCKET",
    "WATCHDOG_PID",
    "WATCHDOG_USEC",
)
_LIMIT_MAX = (1 << 63) - 1
_SET = {"TERM": "xterm-256color"}
# Nobody turns an agent's pages. These tools do not heed PAGER, or prefer a variable of their own.
_PAGERS = (
    "PAGER",
    "AWS_PAGER",
    "BAT_PAGER",
    "DELTA_PAGER",
    "GH_PAGER",
    "GIT_PAGER",
    "MANPAGER",
    "SYSTEMD_PAGER",
)
# For programs that start less whatever these say: it quits when the text fits on the screen.
_UNATTENDED = {**dict.fromkeys(_PAGERS, "cat"), "LESS": "FRX"}
_LIMITS = {
    name.removeprefix("RLIMIT_"): getattr(resource, name)
    for name in dir(resource)
    if name.startswith("RLIMIT_")
}


class ExecContext(NamedTuple):
    """What a terminal takes over from whoever asked for it."""

    env: Mapping[str, str]
    cwd: str
    umask: int
    rlimits: tuple[tuple[int, int, int], ...]
    """Triples of resource, soft and hard limit, as for `resource.setrlimit`."""

    def environment(
        self,
        more: Iterable[tuple[str, str]],
        *,
        attended: bool = False,
        agent_env: Mapping[str, str] = MappingProxyType({}),
    ) -> dict[str, str]:
        """Return the environment of a terminal's program; `more` comes last, and wins.

        `attended`: whether it is a terminal of the user's own. Others have no pagers, and get
        `agent_env`, the setting.
        """
        env = {name: value for name, value in self.env.items() if name not in _NOT_PASSED_ON}
        env.update(_SET)
        if not attended:
            env.update(_UNATTENDED)
            env.update(agent_env)
        env.update(more)
        return env


def current() -> ExecContext:
    """Describe this process. To be called at its start, before it changes any of that."""
    umask = os.umask(0o077)
    os.umask(umask)
    return ExecContext(
        env=dict(os.environ),
        cwd=_current_directory(),
        umask=umask,
        rlimits=tuple((limit, *resource.getrlimit(limit)) for limit in _limits()),
    )


def of_process(pid: int, ours: ExecContext) -> ExecContext:
    """Describe the process `pid` of the same user; `ours` says what the system does not."""
    umask, cwd, rlimits = ours.umask, ours.cwd, ours.rlimits
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as status:
        if found := re.search(r"^Umask:\s*(\d+)$", status.read(), re.MULTILINE):
            umask = int(found[1], 8)
    with contextlib.suppress(OSError):
        cwd = os.readlink(f"/proc/{pid}/cwd")
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError, AttributeError):
            rlimits = tuple((limit, *resource.prlimit(pid, limit)) for limit in _limits())
    return ours._replace(umask=umask, cwd=cwd, rlimits=rlimits)


def limits_by_name(rlimits: Mapping[str, tuple[int, int]]) -> tuple[tuple[int, int, int], ...]:
    """Read limits as they are sent: names without `RLIMIT_`, of which unknown ones are skipped.

    Raises `RpcError` (-32602) for one that no process can have: programs would not even start.
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
    return tuple((_LIMITS[name], *both) for name, both in rlimits.items() if name in _LIMITS)


def to_wire(context: ExecContext) -> acp.ExecContext:
    """Describe an asker for `_meta.acpterm` of `initialize`: to a host that is another process.

    What is not UTF-8 cannot be said in JSON: such variables are left out, and such a folder too,
    which the host finds out itself.
    """
    names = {number: name for name, number in _LIMITS.items()}
    limits = {names[number]: (soft, hard) for number, soft, hard in context.rlimits}
    env = {name: value for name, value in context.env.items() if is_utf8_encodable(name + value)}
    cwd = context.cwd if is_utf8_encodable(context.cwd) else None
    return acp.ExecContext(env=env, cwd=cwd, umask=context.umask, rlimits=limits)


def to_record(context: ExecContext) -> ContextRecord | None:
    """Describe an asker for a successor of this worker; None if it is too large for any program."""
    env = {pack_text(name): pack_text(value) for name, value in context.env.items()}
    if sum(len(name) + len(value) for name, value in env.items()) > _STORED_ENV_BYTES_MAX:
        return None
    return ContextRecord(
        env=env, cwd=pack_text(context.cwd), umask=context.umask, rlimits=list(context.rlimits)
    )


def from_record(record: ContextRecord) -> ExecContext:
    """Return what `to_record` has described."""
    return ExecContext(
        env={unpack_text(name): unpack_text(value) for name, value in record.env.items()},
        cwd=unpack_text(record.cwd),
        umask=record.umask,
        rlimits=tuple(record.rlimits),
    )


def _limits() -> list[int]:
    # Some have two names.
    return sorted(set(_LIMITS.values()))


def _current_directory() -> str:
    try:
        return os.getcwd()
    except OSError:  # it was removed
        return "/"
