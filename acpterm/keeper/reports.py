"""What a worker gets from its keeper."""

from typing import Final, NamedTuple, Protocol

UNKNOWN: Final = -1
"""The status of a program whose end was not seen: it was another keeper's child."""


class ExitReport(NamedTuple):
    """How a program ended."""

    status: int
    """As `os.wait` has it, or `UNKNOWN`."""
    cpu: float
    """Seconds of processor time, user and system, with the children that it waited for."""
    max_rss: int
    """Bytes: the most memory that it, or one of its children, held at a time."""
    reaped_at: float
    """On the clock since boot (CLOCK_BOOTTIME)."""
    end: int
    """Everything that the program wrote itself lies before this position."""


class Spawned(NamedTuple):
    """A program that was started. The descriptors are the receiver's to close."""

    name: str
    pid: int
    started: float
    """Seconds since boot, as in /proc/PID/stat; 0.0 where that is unknown."""
    master: int | None
    """None if the terminal was closed before this message could be sent."""
    ring: int
    way: str
    """`posix_spawn`, `clone3`, `fork` or `ptyprocess`."""


class Found(NamedTuple):
    """A terminal of the worker before. The descriptors are the receiver's to close."""

    name: str
    pid: int
    started: float
    master: int | None
    """None once the terminal is closed."""
    ring: int
    exit: ExitReport | None
    closed_end: int | None


class Entry(NamedTuple):
    """What a worker before has put. The descriptors are the receiver's to close."""

    value: bytes
    fds: tuple[int, ...]


class TerminalEvents(Protocol):
    """Receives the reports about one terminal. The methods return at once and do not raise."""

    def exited(self, report: ExitReport) -> None:
        """Act on the end of the program, which was reaped; called once, before `closed`."""

    def closed(self, end: int) -> None:
        """Act on the end of the output, at position `end`; called once."""

    def wake(self) -> None:
        """Look at the ring: more was written since `KeeperClient.arm`. Called once per `arm`."""


class KeeperLostError(Exception):
    """The keeper is gone: programs run on without a parent that reports on them."""


class RestartError(Exception):
    """The new worker did not come up, and this one goes on; the message says why."""


def exit_report(
    status: int | None, cpu: float, max_rss: int, reaped_at: float, end: int
) -> ExitReport:
    """Make a report of what the keeper sent."""
    return ExitReport(UNKNOWN if status is None else status, cpu, max_rss, reaped_at, end)
