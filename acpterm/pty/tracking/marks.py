"""The marks that every process of a terminal carries, and by which it is recognised later.

- Environment: `ACPTERM_TERMINAL_ID`, the terminal's id, and `ACPTERM_DAEMON`, the identity of the
  daemon that created it. A program can start other programs without these variables.
- On Linux, a resource limit: the soft `RLIMIT_LOCKS` is a number derived from the terminal's id.
  No kernel since 2.4 enforces that limit. It is inherited across fork, exec, setsid and a change
  of user or control group. Every process may read it in `/proc/PID/limits`, whatever the user and
  the dumpable flag of the marked process. A process loses this mark only if it sets this limit
  itself. `ulimit -x` prints the limit.

The daemon's identity is `PID-TICKS-NAMESPACE-PLACE`: its pid, its start time in clock ticks since
boot, the inode number of the pid namespace to which the pid belongs, and a hash of the path of its
socket (0 without a socket). By this hash, the next daemon on the socket recognises the processes
that its predecessor has left.
"""

import hashlib
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

from acpterm.pty import linux, processes

if TYPE_CHECKING:
    # `tree` imports trio, which clients that need these marks do not load.
    from acpterm.pty.tracking.tree import Rlimits

TERMINAL: Final = "ACPTERM_TERMINAL_ID"  # the terminal's id
DAEMON: Final = "ACPTERM_DAEMON"  # the identity of the daemon that created it
# Marks what acpterm has started outside of terminals: a daemon that a command has started, and a
# place's client without a terminal, such as ssh.
STARTED_DETACHED: Final = "ACPTERM_DETACHED"
# A process with one of these is acpterm's own, and never treated as an orphan of a terminal.
# The first is `keeper.protocol.KEEPER_FD_VARIABLE`, which this layer cannot import.
DETACHED: Final = ("ACPTERM_KEEPER_FD", STARTED_DETACHED)

# Tags are at least this number: far above any limit that a user would choose, and below
# RLIM_INFINITY.
_TAG_BASE: Final = 1 << 60
_TAG_BYTES: Final = 7
_PLACE_BYTES: Final = 6


class Daemon(NamedTuple):
    """The identity of a daemon, or of another process that starts programs."""

    # It stays the same when the daemon's worker is replaced.

    pid: int  # of the process that starts the programs, such as the keeper
    ticks: int  # its start in clock ticks since boot; 0 if unknown
    namespace: int  # inode number of the pid namespace of `pid`; 0 if unknown
    place: int  # a hash of the path of its socket; 0 without a socket

    def __str__(self) -> str:
        return "-".join(map(str, self))

    @classmethod
    def of(cls, pid: int, socket_path: str | None) -> "Daemon":
        """Return the identity of a daemon whose programs the process `pid` starts."""
        found = processes.identity(pid)
        ticks = 0 if found is None else linux.ticks(found.started)
        place = 0 if socket_path is None else _number(os.path.abspath(socket_path), _PLACE_BYTES)
        return cls(pid, ticks, linux.pid_namespace(), place)

    @classmethod
    def parse(cls, value: str) -> "Daemon | None":
        """Parse the value of `ACPTERM_DAEMON`; None if it is invalid."""
        parts = value.split("-")
        if len(parts) != len(cls._fields) or not all(p.isascii() and p.isdigit() for p in parts):
            return None
        return cls(*map(int, parts))

    def is_gone(self) -> bool:
        """Return whether the daemon is known to have ended."""
        if self.namespace != linux.pid_namespace():
            return False
        found = processes.identity(self.pid)
        return found is None or found.zombie or linux.ticks(found.started) != self.ticks


def environment(name: str, daemon: Daemon) -> dict[str, str]:
    """Return the variables that mark the processes of a terminal."""
    return {TERMINAL: name, DAEMON: str(daemon)}


def tag(name: str) -> int:
    """Return the soft `RLIMIT_LOCKS` that marks the processes of a terminal."""
    return _TAG_BASE + _number(name, _TAG_BYTES)


def rlimits(name: str) -> "Rlimits":
    """Return the limits that mark a terminal's processes; none if the system has no such limit."""
    if not linux.AVAILABLE:
        return ()
    _, hard = resource.getrlimit(linux.RLIMIT_LOCKS)
    number = tag(name)
    if hard != resource.RLIM_INFINITY and hard < number:
        return ()
    return ((linux.RLIMIT_LOCKS, number, hard),)


@contextmanager
def inherited(limits: "Rlimits") -> Iterator[None]:
    """Set resource limits of this process during the block, for children that it starts."""
    before = [(number, *resource.getrlimit(number)) for number, _, _ in limits]
    for number, soft, hard in limits:
        resource.setrlimit(number, (soft, hard))
    try:
        yield
    finally:
        for number, soft, hard in before:
            resource.setrlimit(number, (soft, hard))


class Marks(NamedTuple):
    """The marks of one process, from which its terminal is recognised."""

    terminal: str | None  # from the environment
    daemon: Daemon | None  # from the environment
    tag: int | None  # the soft `RLIMIT_LOCKS`, if it is one of `marks.tag`
    detached: bool  # has a variable of `DETACHED`


def read(pid: int) -> Marks:
    """Return the marks of a process. Raises `OSError` if no descriptor is free."""
    entries = processes.environment_of(pid)
    terminal = entries.get(TERMINAL.encode(), b"").decode("utf-8", "replace")
    daemon = entries.get(DAEMON.encode(), b"").decode("ascii", "replace")
    return Marks(
        terminal=terminal or None,
        daemon=Daemon.parse(daemon),
        tag=_tag_of(pid),
        detached=any(os.fsencode(name) in entries for name in DETACHED),
    )


def _number(text: str, size: int) -> int:
    return int.from_bytes(hashlib.blake2b(os.fsencode(text), digest_size=size).digest())


def _tag_of(pid: int) -> int | None:
    found = linux.soft_limit_of(pid, linux.LOCKS_LINE) if linux.AVAILABLE else None
    return found if found is not None and found >= _TAG_BASE else None
