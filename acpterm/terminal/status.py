"""How a terminal's program ended, and what ended it."""

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
    """The user ended the program."""
    TIMEOUT = "timeout"
    """The lifetime expired that the terminal's creator or a limit set."""
    IDLE = "idle"
    """There was no output and no input for as long as a limit allows."""
    LIMIT = "limit"
    """The program used more of a resource than a limit allows."""
    LOST = "lost"
    """The exit status was lost: with the keeper, or with the connection to another host."""
    NODE_FAILURE = "node_failure"
    """The node of a cluster failed that the program ran on."""
    TIME_LIMIT = "time_limit"
    """The time limit of the cluster's job expired."""
    PREEMPTED = "preempted"
    """The cluster gave the resources of the job to another one."""
    CANCELLED = "cancelled"
    """The job was cancelled, by an administrator or by the user with the cluster's commands."""
    NOT_STARTED = "not_started"
    """The cluster refused to run the program."""
    DISCONNECT = "disconnect"
    """The agent's connection that owned the terminal ended, or the daemon did."""


class ExitStatus(NamedTuple):
    """How a program ended. Exactly one of `code` and `signal` is None."""

    code: int | None
    """The exit code, 0 to 255; None if a signal ended the program."""
    signal: str | None
    """The signal's name, such as `SIGTERM`; None if the program exited."""
    ended_by: EndedBy
    wall: float
    """Seconds from the program's start to its end."""
    cpu: float
    """Seconds of CPU time of the program and of the children that it waited for."""
    max_rss: int
    """Peak resident memory in bytes, of the program or of a child that it waited for."""
    cause: Cause | None = None
    """The limit that ended the program; None unless a limit did."""
    host: str | None = None
    """The name of the host that the program ran on; None for this one."""
