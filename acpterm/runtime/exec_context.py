"""Execution contexts: the environment, directory, umask and limits that programs are started with.

A terminal gets the context of its client: the process that ran `acpterm stdio`, or the process at
the other end of a socket. The umask, limits and directory of another process can be read from
`/proc`, but not its current environment. So the daemon's environment is used, unless the client
sends its own in `initialize`, as acpterm's commands do.
"""

import contextlib
import os
import re
import resource
import sys
from collections.abc import Mapping
from typing import Final, NamedTuple

RLIMITS: Final[Mapping[str, int]] = {
    name.removeprefix("RLIMIT_"): getattr(resource, name)
    for name in dir(resource)
    if name.startswith("RLIMIT_")
}
"""The numbers of this system's resource limits, by their names without `RLIMIT_`."""


class ExecContext(NamedTuple):
    """An execution context: what a program inherits from the client that started it."""

    env: Mapping[str, str]
    cwd: str
    umask: int
    rlimits: tuple[tuple[int, int, int], ...]
    """Triples of resource, soft and hard limit, as for `resource.setrlimit`."""


def current() -> ExecContext:
    """Return the context of this process. Call this at startup, before the context changes."""
    umask = os.umask(0o077)
    os.umask(umask)
    return ExecContext(
        env=dict(os.environ),
        cwd=current_directory(),
        umask=umask,
        rlimits=tuple((limit, *resource.getrlimit(limit)) for limit in _resources()),
    )


def of_process(pid: int, default: ExecContext) -> ExecContext:
    """Return the context of another process; what cannot be read comes from `default`."""
    umask, cwd, rlimits = default.umask, default.cwd, default.rlimits
    with contextlib.suppress(OSError, ValueError), open(f"/proc/{pid}/status") as status:
        if found := re.search(r"^Umask:\s*(\d+)$", status.read(), re.MULTILINE):
            umask = int(found[1], 8)
    with contextlib.suppress(OSError):
        cwd = os.readlink(f"/proc/{pid}/cwd")
    if sys.platform == "linux":
        with contextlib.suppress(OSError, ValueError, AttributeError):
            rlimits = tuple((limit, *resource.prlimit(pid, limit)) for limit in _resources())
    return default._replace(umask=umask, cwd=cwd, rlimits=rlimits)


def _resources() -> list[int]:
    # Some resources have two names: the set removes the duplicate numbers.
    return sorted(set(RLIMITS.values()))


def current_directory() -> str:
    """Return this process's directory; if it was removed, the path that it had, or `/`."""
    try:
        return os.getcwd()
    except OSError:
        return os.environ.get("PWD") or "/"
