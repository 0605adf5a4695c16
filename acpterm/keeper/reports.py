"""The values, callbacks and errors that a worker gets from its keeper."""

from typing import Final, NamedTuple, Protocol

UNKNOWN: Final = -1
"""Status of a program that was not reaped by this keeper: it was an earlier keeper's child."""


class ExitReport(NamedTuple):
    """How a program exited."""

    status: int
    """Wait status as returned by `os.wait`, or `UNKNOWN`."""
    cpu: float
    """CPU time in seconds, user and system, including children that the program waited for."""
    max_rss: int
    """Peak resident set size in bytes, of the program or of one of its children."""
    reaped_at: float
    """Seconds since boot (CLOCK_BOOTTIME)."""
    end: int
    """Position in the output; everything that the program itself wrote is before it."""


class Spawned(NamedTuple):
    """A program that was started. The receiver owns the descriptors."""

    name: str
    pid: int
    started: float
    """Start time in seconds since boot, as in /proc/PID/stat; 0.0 if unknown."""
    master: int | None
    """None if the terminal was closed before this message could be sent."""
    ring: int
    way: str
    """`posix_spawn`, `clone3`, `fork` or `ptyprocess`."""


class Found(NamedTuple):
    """A terminal of the previous worker. The receiver owns the descriptors."""

    name: str
    pid: int
    started: float
    master: int | None
    """None once the terminal is closed."""
    ring: int
    exit: ExitReport | None
    closed_end: int | None


class Entry(NamedTuple):
    """An entry that a previous worker has stored. The receiver owns the descriptors."""

    value: bytes
    fds: tuple[int, ...]


class TerminalEvents(Protocol):
    """Callbacks for one terminal. They must not block and must not raise."""

    def exited(self, report: ExitReport) -> None:
        """Handle the exit of the program, which was reaped. Called once, before `closed`."""

    def closed(self, end: int) -> None:
        """Handle the end of the output, at position `end`. Called once."""

    def wake(self) -> None:
        """Handle output that was written since `KeeperClient.arm`. Called once per `arm`."""


class KeeperLostError(Exception):
    """The keeper is gone: programs continue without a parent that reports their exit."""


class RestartError(Exception):
    """The new worker failed to start, so this one continues; the message says why."""


def exit_report(
    status: int | None, cpu: float, max_rss: int, reaped_at: float, end: int
) -> ExitReport:
    """Return the report for the fields that the keeper sent; a status of None is `UNKNOWN`."""
    return ExitReport(UNKNOWN if status is None else status, cpu, max_rss, reaped_at, end)
