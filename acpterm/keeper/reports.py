"""The values, callbacks and errors that a worker gets from its keeper."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

UNKNOWN: Final = -1
"""The `status` of an exit that is unknown, because an earlier keeper started the program."""


class ExitReport(NamedTuple):
    """How a program exited, as the keeper reports it."""

    status: int
    """Wait status as returned by `os.wait`, or `UNKNOWN`."""
    cpu: float
    """CPU time in seconds, user and system, including children that the program waited for."""
    max_rss: int
    """Peak resident set size in bytes, of the program or of one of its children."""
    reaped_at: float
    """The time at which the keeper reaped the program, in seconds since boot (CLOCK_BOOTTIME)."""
    end: int
    """A position in the output. Everything that the program itself wrote is before it."""
    orphans: Sequence[int] | None = None
    """The pids of all orphans just after the program was reaped; None if unknown."""


class Spawned(NamedTuple):
    """The response to a spawn: a started program. The receiver owns `master` and `ring`."""

    name: str
    pid: int
    started: float
    """Start time in seconds since boot, as in /proc/PID/stat; 0.0 if unknown."""
    master: int | None
    """The PTY's master; None if the keeper closed it before it could send the response."""
    ring: int
    """A descriptor of the ring file."""
    way: str
    """How the program was started: `leader`, `fork` or `ptyprocess`."""
    session: int | None
    """The id of the PTY's session; None if the program leads the session, or the PTY has closed."""


class Found(NamedTuple):
    """A terminal that a previous worker created. The receiver owns `master` and `ring`."""

    name: str
    pid: int
    started: float
    """Start time in seconds since boot, as in /proc/PID/stat; 0.0 if unknown."""
    master: int | None
    """The PTY's master; None once the keeper has closed it."""
    ring: int
    """A descriptor of the ring file."""
    exit: ExitReport | None
    """How the program exited; None while it runs."""
    closed_end: int | None
    """The position at which the output ends; None until the terminal is closed."""
    session: int | None
    """As in `Spawned`."""


class Entry(NamedTuple):
    """A value and descriptors that a previous worker has stored in the keeper under a key.

    The receiver owns `fds`.
    """

    value: bytes
    fds: tuple[int, ...]


class TerminalEvents(Protocol):
    """Callbacks for the keeper's reports about one terminal. They must not block or raise."""

    def exited(self, report: ExitReport) -> None:
        """Handle the exit of the program: the keeper reaped it. Called once, before `closed`."""

    def closed(self, end: int) -> None:
        """Handle the end of the output, at position `end`. Called once."""

    def wake(self) -> None:
        """Handle new output. Called at most once for each call of `KeeperClient.arm`."""


class KeeperLostError(Exception):
    """The connection to the keeper is lost, usually because the keeper has ended.

    Programs may continue, but no process reports their exit.
    """


class RestartError(Exception):
    """The new worker failed to start, so this worker continues. The error's message says why."""


def exit_report(fields: Sequence[Any]) -> ExitReport:
    """Return the report with the given fields; a status of None becomes `UNKNOWN`."""
    status, *others = fields
    return ExitReport(UNKNOWN if status is None else status, *others)
