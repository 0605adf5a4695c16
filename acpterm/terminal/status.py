"""How a terminal's program ended, and at whose hand."""

import enum
from typing import NamedTuple


class EndedBy(enum.StrEnum):
    """Who ended a terminal's program."""

    EXITED = "exited"
    """Itself, or a signal from somewhere else than here."""
    AGENT = "agent"
    """The agent, by killing or releasing it."""
    USER = "user"
    """The person."""
    TIMEOUT = "timeout"
    """The time that its creator gave it was over."""
    LOST = "lost"
    """The keeper was lost, and its status with it: it was ended, and nobody knows how."""
    DISCONNECT = "disconnect"
    """The connection that it belonged to went away, or the daemon was ended."""


class ExitStatus(NamedTuple):
    """The end of a program. Either `code` or `signal` is None, never both."""

    code: int | None
    """0 to 255; None when a signal ended it."""
    signal: str | None
    """The signal's name, as `SIGTERM`; None when it exited."""
    ended_by: EndedBy
    wall: float
    """Seconds from its start to its end."""
    cpu: float
    """Seconds of processor time, its own and that of the children it waited for."""
    max_rss: int
    """Bytes: the most memory that it, or one of those children, held at a time."""
