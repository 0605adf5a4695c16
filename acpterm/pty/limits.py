"""The resource limits of one terminal's programs, as data.

Two kinds of limits exist. A limit of the *control group* (`memory`, `cpu`, `processes`, `disk_io`)
applies to all processes of the terminal together: `tracking.cgroup_limits` sets it. A limit of each
*process* (`open_files`, `file_size`) is set by setrlimit(2) when the program starts, and its
children inherit it. The limits of a control group cannot be replaced by limits of a process:
RLIMIT_AS limits the address space of each process, not its memory; and RLIMIT_NPROC counts all
processes of the user, including those of other terminals and of the desktop.
"""

import resource
import signal
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, NamedTuple, TypeAlias

Rlimit = tuple[int, int, int]  # resource, soft and hard limit, as for `resource.setrlimit`


# By the names in `CONTROLLERS` and `RLIMITS`, in the units of `config.profiles.Limits`.
ResourceLimits: TypeAlias = Mapping[str, float]

# the controllers that each limit of a control group needs
CONTROLLERS: Final[Mapping[str, tuple[str, ...]]] = {
    "memory": ("memory",),
    "cpu": ("cpu",),
    "processes": ("pids",),
    "disk_io": ("io", "memory"),
}
RLIMITS: Final[Mapping[str, int]] = {
    "open_files": resource.RLIMIT_NOFILE,
    "file_size": resource.RLIMIT_FSIZE,
}
RESOURCES: Final = (*CONTROLLERS, *RLIMITS)
NO_LIMITS: Final[ResourceLimits] = MappingProxyType({})


def rlimits(limits: ResourceLimits, others: Sequence[Rlimit] = ()) -> list[Rlimit]:
    """Return the limits of a process, for setrlimit(2).

    Each is lowered to what the program (`others`) or this process would have without it; the hard
    limit too, since a program may raise its soft limit up to it.
    """
    given = {number: (soft, hard) for number, soft, hard in others}
    found = []
    for name, number in RLIMITS.items():
        if name in limits:
            value = int(limits[name])
            soft, hard = given.get(number, resource.getrlimit(number))
            found.append((number, _least(soft, value), _least(hard, value)))
    return found


class Cause(NamedTuple):
    """The limit that ended a program."""

    limit: str  # one of `RESOURCES`, or `wall`, `idle`, `timeoutMs`
    value: float  # bytes, seconds (`wall`, `idle`) or milliseconds (`timeoutMs`)


class LimitError(Exception):
    """A limit cannot be enforced here."""

    def __init__(self, limit: str, value: float, reason: str) -> None:
        super().__init__(f"the limit {limit} = {value:.15g} cannot be enforced here: {reason}")
        self.limit = limit
        self.value = value
        self.reason = reason


def is_file_size_exceeded(code: int | None, signal_name: str | None) -> bool:
    # The kernel sends SIGXFSZ; a shell exits with 128 plus the signal of its last command.
    return signal_name == "SIGXFSZ" or code == 128 + signal.SIGXFSZ


def _least(one: int, other: int) -> int:
    return other if one == resource.RLIM_INFINITY else min(one, other)
