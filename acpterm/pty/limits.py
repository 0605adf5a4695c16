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
from collections.abc import Sequence
from typing import NamedTuple

Rlimit = tuple[int, int, int]
"""A resource, its soft limit and its hard limit, as for `resource.setrlimit`."""


class ResourceLimits(NamedTuple):
    """The maximum resources that a terminal's programs may use. None means no limit."""

    memory: int | None = None
    """Bytes of memory, page cache included, of all processes of the terminal together."""
    cpu: float | None = None
    """CPUs that all processes of the terminal may use together, such as 1.5."""
    processes: int | None = None
    """Processes and threads of the terminal at the same time."""
    open_files: int | None = None
    """Open files of each process."""
    file_size: int | None = None
    """The maximum size, in bytes, of a file that a process writes."""
    disk_io: int | None = None
    """Bytes per second that all processes of the terminal may read from each disk; the same number
    applies to writes."""

    def rlimits(self, others: Sequence[Rlimit] = ()) -> list[Rlimit]:
        """Return `open_files` and `file_size`, if set, as limits for setrlimit(2).

        `others` are the limits that the program would have without these two fields. For a resource
        that is not in `others`, the limit of this process is used instead. Each soft limit in the
        result is the lower of two values: the field, and the soft limit without the field. The hard
        limit is determined in the same way, since a program may raise its soft limit up to the hard
        limit.
        """
        given = {number: (soft, hard) for number, soft, hard in others}
        found = []
        for number, value in (
            (resource.RLIMIT_NOFILE, self.open_files),
            (resource.RLIMIT_FSIZE, self.file_size),
        ):
            if value is not None:
                soft, hard = given.get(number, resource.getrlimit(number))
                found.append((number, _least(soft, value), _least(hard, value)))
        return found


NO_LIMITS = ResourceLimits()


class Cause(NamedTuple):
    """The limit that ended a program."""

    limit: str
    """The name of the limit: a field of `ResourceLimits`, or `wall`, `idle` or `timeoutMs`."""
    value: float
    """The limit in bytes, seconds (`wall`, `idle`) or milliseconds (`timeoutMs`)."""


class LimitError(Exception):
    """A limit cannot be enforced here. The message names the limit, its value and the reason."""

    def __init__(self, limit: str, value: float, reason: str) -> None:
        super().__init__(f"the limit {limit} = {value:.15g} cannot be enforced here: {reason}")
        self.limit = limit
        self.value = value
        self.reason = reason


def is_file_size_exceeded(code: int | None, signal_name: str | None) -> bool:
    """Return whether a program ended because a file reached the limit `file_size`.

    `code` and `signal_name` are the program's exit status. At that limit the kernel sends SIGXFSZ,
    which ends a program that does not handle it. If that program was the last command of a shell,
    the shell exits with 128 plus the number of the signal.
    """
    return signal_name == "SIGXFSZ" or code == 128 + signal.SIGXFSZ


def _least(one: int, other: int) -> int:
    return other if one == resource.RLIM_INFINITY else min(one, other)
