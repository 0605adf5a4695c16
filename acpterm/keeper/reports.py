"""The values, callbacks and errors that a worker gets from its keeper."""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple, Protocol

UNKNOWN: Final = -1  # `status` of an exit if an earlier keeper started the program


class ExitReport(NamedTuple):
    """How a program exited, as the keeper reports it."""

    status: int  # wait status, or `UNKNOWN`
    cpu: float  # seconds, user and system, with children that it waited for
    max_rss: int  # peak bytes, of the program or a child
    reaped_at: float  # seconds since boot (CLOCK_BOOTTIME)
    end: int  # the program's own output is before this position
    orphans: Sequence[int] | None = None  # pids just after it was reaped; None if unknown


class Spawned(NamedTuple):
    """The response to a spawn: a started program. The receiver owns `master` and `ring`."""

    name: str
    pid: int
    started: float  # seconds since boot, as in /proc/PID/stat; 0.0 if unknown
    master: int | None  # None if the keeper has closed it already
    ring: int
    way: str  # `leader`, `fork` or `ptyprocess`
    session: int | None  # None if the program leads it, or the PTY has closed


class Found(NamedTuple):
    """A terminal that a previous worker created. The receiver owns `master` and `ring`."""

    name: str
    pid: int
    started: float  # as in `Spawned`
    master: int | None  # None once the keeper has closed it
    ring: int
    exit: ExitReport | None  # None while the program runs
    closed_end: int | None  # where the output ends; None until the terminal is closed
    session: int | None  # as in `Spawned`


class FoundEntry(NamedTuple):
    """What a previous worker has stored in the keeper under a key. The receiver owns `fds`."""

    value: bytes
    fds: tuple[int, ...]


class TerminalEvents(Protocol):
    """Callbacks for the keeper's reports about one terminal. They must not block or raise."""

    def exited(self, report: ExitReport) -> None:
        """Handle the exit: the keeper has reaped the program. Called once, before `closed`."""

    def closed(self, end: int) -> None:
        """Handle the end of the output, at position `end`. Called once."""

    def wake(self) -> None:
        """Handle new output. Called at most once for each `KeeperClient.arm`."""


class KeeperLostError(Exception):
    """The connection to the keeper is lost, usually because the keeper has ended.

    Programs may continue, but no process reports their exit.
    """


class RestartError(Exception):
    """The new worker failed to start, so this worker continues."""


def exit_report(fields: Sequence[Any]) -> ExitReport:
    status, *others = fields
    return ExitReport(UNKNOWN if status is None else status, *others)
