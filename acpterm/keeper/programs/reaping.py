"""The first process of a terminal: that it has ended, how, and how that is kept.

Two steps, since in between its pid is still ours: a child that *has ended* is a zombie, and no
other process can have its number; once it is *reaped* the number means nothing any more.
"""

from __future__ import annotations

import os
import sys
import time

from acpterm.keeper.ring import (
    EXIT_AT,
    EXIT_CPU,
    EXIT_END,
    EXIT_RSS,
    EXITED,
    EXITED_UNKNOWN,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable
    from typing import TypeAlias

    from acpterm.keeper.process.loop import Loop

    # Wait status (None: unknown), seconds of CPU, bytes of RSS, when reaped, end of what it wrote.
    Exit: TypeAlias = tuple[int | None, float, int, float, int]

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Child:
    """One process. It owns the pidfd, which is None where the system has none."""

    __slots__ = ("_pidfd", "_taken", "pid", "started")

    def __init__(self, pid: int, started: float, pidfd: int | None) -> None:
        self.pid = pid
        self.started = started
        self._pidfd = pidfd
        self._taken: tuple[int, int, resource.struct_rusage] | None = None

    def watch(self, loop: Loop, ended: Callable[[], None]) -> None:
        """Call `ended` when the process has ended, where that can be seen by its pidfd."""
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, ended)

    def unwatch(self, loop: Loop) -> None:
        """Undo `watch`. Can be repeated."""
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    def check_ended(self) -> bool:
        """Look, where there is no pidfd: to be called at SIGCHLD."""
        if self._pidfd is not None:
            return False
        try:
            if hasattr(os, "waitid"):
                options = os.WEXITED | os.WNOHANG | os.WNOWAIT
                return os.waitid(os.P_PID, self.pid, options) is not None
            # The status comes with the knowledge; the report can wait for it all the same.
            self._taken = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            return True
        return self._taken[0] != 0

    def reap(self, end: int) -> Exit | None:
        """Take the status of the process, which has ended and has written up to `end`.

        None while a debugger keeps it to itself: a pidfd is readable before a traced child's parent
        can have the status.
        """
        try:
            if self._taken is None or self._taken[0] == 0:
                self._taken = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            return None, 0.0, 0, time.clock_gettime(_CLOCK), end
        reaped, status, usage = self._taken
        if not reaped:
            return None
        cpu = usage.ru_utime + usage.ru_stime
        return status, cpu, usage.ru_maxrss * _RSS_UNIT, time.clock_gettime(_CLOCK), end


def write_exit(header: memoryview, report: Exit) -> None:
    """Write a report into the header of a ring; `EXITED` last, which says that it is there."""
    status, cpu, max_rss, at, end = report
    header[EXIT_END] = end
    header[EXIT_CPU] = int(cpu * 1e6)
    header[EXIT_RSS] = max_rss
    header[EXIT_AT] = int(at * 1e6)
    header[EXITED] = EXITED_UNKNOWN if status is None else status + 1


def read_exit(header: memoryview) -> Exit | None:
    """Return the report in the header of a ring; None if there is none."""
    exited = header[EXITED]
    if not exited:
        return None
    status = None if exited == EXITED_UNKNOWN else exited - 1
    return status, header[EXIT_CPU] / 1e6, header[EXIT_RSS], header[EXIT_AT] / 1e6, header[EXIT_END]
