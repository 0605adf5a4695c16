"""Waiting for one child, in two steps, since in between its pid is still ours.

1. *Reapable*: it has ended and its status can be had. `wait_reapable` only looks; the pid cannot be
   used again by the system, so signals cannot hit a stranger.
2. *Reaped*: `reap` takes the status. From then on the pid means nothing.

By a pidfd where there is one; else a thread waits, without taking the status.
"""

import contextlib
import math
import os
import resource
import select
import sys
from typing import NamedTuple

import trio

from acpterm.pty.signals import name_of

# One thread per child that runs: the children are limited elsewhere.
_threads = trio.CapacityLimiter(math.inf)
_MAXRSS_UNIT = 1 if sys.platform == "darwin" else 1024


class Exit(NamedTuple):
    """How a child ended, and what it used, with its own children that it waited for."""

    code: int | None
    """0 to 255; None when a signal ended it."""
    signal: str | None
    """The signal's name; None when it exited."""
    cpu: float
    """Seconds of processor time, user and system."""
    max_rss: int
    """Bytes: the most memory that it, or one of its children, held at a time."""


async def wait_reapable(pid: int, pidfd: int | None) -> None:
    """Wait until the child has ended, and leave it to be reaped.

    Cancelling leaves no trace, but for the thread where it takes one: that ends with the child.
    """
    if pidfd is not None:
        await trio.lowlevel.wait_readable(pidfd)
    else:
        await trio.to_thread.run_sync(
            _wait_in_thread, pid, abandon_on_cancel=True, limiter=_threads
        )


def _wait_in_thread(pid: int) -> None:
    # Whoever is gone has been reaped already; `reap` says what that means.
    with contextlib.suppress(ProcessLookupError):
        if sys.platform == "darwin":  # which has no waitid in Python before 3.13
            queue = select.kqueue()
            event = select.kevent(pid, select.KQ_FILTER_PROC, select.KQ_EV_ADD, select.KQ_NOTE_EXIT)
            queue.control([event], 1)
            queue.close()
        else:
            with contextlib.suppress(ChildProcessError):
                os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)


def reap(pid: int) -> Exit | None:
    """Take the status of a child that is reapable. Returns at once.

    None while a debugger keeps it to itself: a pidfd tells of the end of a traced child before its
    parent can have the status. Raises `ChildProcessError` when somebody else has taken it.
    """
    reaped, status, usage = os.wait4(pid, os.WNOHANG)
    return exit_of(status, usage) if reaped else None


def exit_of(status: int, usage: resource.struct_rusage) -> Exit:
    """Read a wait status and what came with it."""
    code = os.waitstatus_to_exitcode(status)
    return Exit(
        code=code if code >= 0 else None,
        signal=name_of(-code) if code < 0 else None,
        cpu=usage.ru_utime + usage.ru_stime,
        max_rss=usage.ru_maxrss * _MAXRSS_UNIT,
    )
