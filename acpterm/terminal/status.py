"""The exit status of a terminal's program, and what ended the program."""

import enum
from typing import NamedTuple

from acpterm.pty.limits import Cause


class EndedBy(enum.StrEnum):
    """What ended a terminal's program."""

    EXITED = "exited"
    """The program ended by itself, or by a signal that this daemon did not send."""
    AGENT = "agent"
    """The agent killed or released the terminal."""
    USER = "user"
    """The user killed or released the terminal."""
    TIMEOUT = "timeout"
    """The program's lifetime expired. The terminal's creator or a limit had set the lifetime."""
    IDLE = "idle"
    """There was neither output nor input for longer than a limit allows."""
    LIMIT = "limit"
    """The program used more of a resource than a limit allows."""
    LOST = "lost"
    """The exit status was lost: with the keeper, or with the connection to another host."""
    NODE_FAILURE = "node_failure"
    """The program ran on a node of a cluster, and the node failed."""
    TIME_LIMIT = "time_limit"
    """The time limit of the cluster's job expired."""
    PREEMPTED = "preempted"
    """The cluster took the job's resources for another job."""
    CANCELLED = "cancelled"
    """An administrator, or the user with a command of the cluster, cancelled the job."""
    NOT_STARTED = "not_started"
    """The cluster refused to run the program."""
    DISCONNECT = "disconnect"
    """The agent's connection that owned the terminal ended, or the daemon ended."""


class ExitStatus(NamedTuple):
    """How a program ended. Exactly one of `code` and `signal` is None."""

    code: int | None
    """The exit code, 0 to 255; None if a signal ended the program."""
    signal: str | None
    """The signal's name, such as `SIGTERM`; None if the program exited."""
    ended_by: EndedBy
    """What ended the program."""
    wall: float
    """Seconds from the program's start to its end."""
    cpu: float
    """CPU time in seconds of the program and the children that it waited for; NaN if the program
    ran on another host."""
    max_rss: int
    """Peak resident memory in bytes, of the program or a child that it waited for; 0 if unknown."""
    cause: Cause | None = None
    """The limit that ended the program; None unless a limit did."""
    host: str | None = None
    """The name of the other host on which the program ran; None for this host, or if unknown."""
