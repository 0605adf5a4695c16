"""How a terminal's program ended, and who ended it."""

import enum
from typing import NamedTuple


class EndedBy(enum.StrEnum):
    """Who ended a terminal's program."""

    EXITED = "exited"
    """The program itself, or a signal that this daemon did not send."""
    AGENT = "agent"
    """The agent, by kill or release."""
    USER = "user"
    """The user."""
    TIMEOUT = "timeout"
    """The lifetime that its creator set."""
    LOST = "lost"
    """The loss of the keeper, and of the exit status with it."""
    DISCONNECT = "disconnect"
    """The end of the connection that it belonged to, or of the daemon."""


class ExitStatus(NamedTuple):
    """The end of a program. Either `code` or `signal` is None, never both."""

    code: int | None
    """0 to 255; None if a signal ended the program."""
    signal: str | None
    """The signal's name, such as `SIGTERM`; None if the program exited."""
    ended_by: EndedBy
    wall: float
    """Seconds from start to end."""
    cpu: float
    """Seconds of CPU time of the program and of the children that it waited for."""
    max_rss: int
    """Peak resident memory of the program, or of one of those children, in bytes."""
