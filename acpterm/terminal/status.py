"""The exit status of a terminal's program, and what ended the program."""

import enum
from typing import NamedTuple

from acpterm.pty.limits import Cause


class EndedBy(enum.StrEnum):
    """What ended a terminal's program."""

    EXITED = "exited"  # by itself, or by a signal that this daemon did not send
    AGENT = "agent"  # the agent killed or released the terminal
    USER = "user"
    TIMEOUT = "timeout"  # the lifetime that the creator or a limit had set
    IDLE = "idle"  # neither output nor input for longer than a limit allows
    LIMIT = "limit"  # more of a resource than a limit allows
    LOST = "lost"  # the status was lost with the keeper, or with the connection to another host
    NODE_FAILURE = "node_failure"  # of a cluster
    TIME_LIMIT = "time_limit"  # of the cluster's job
    PREEMPTED = "preempted"  # the cluster gave the resources to another job
    CANCELLED = "cancelled"  # by an administrator, or by the user with a command of the cluster
    NOT_STARTED = "not_started"  # the cluster refused to run it
    DISCONNECT = "disconnect"  # the owning agent's connection ended, or the daemon


class ExitStatus(NamedTuple):
    """How a program ended. Exactly one of `code` and `signal` is None."""

    code: int | None  # 0 to 255
    signal: str | None  # such as `SIGTERM`
    ended_by: EndedBy
    wall: float  # seconds
    cpu: float  # seconds, with children that were waited for; NaN on another host
    max_rss: int  # peak bytes, of the program or a child; 0 if unknown
    cause: Cause | None = None  # the limit that ended the program
    host: str | None = None  # the other host on which it ran
