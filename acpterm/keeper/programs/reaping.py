"""Detect that the process of a terminal's program has ended, reap it, and report its exit.

Other children, such as orphans, are reaped by `process.keeper`.

A child first ends and is reaped later. A child that has *ended* is a zombie, and its pid cannot be
reused. Once the child is *reaped*, its pid may belong to another process. The exit report (exit
status, CPU time and so on) is stored in the ring's header, so that it outlives the keeper.
"""

from __future__ import annotations

import os
import sys
import time

from acpterm.keeper.programs import system
from acpterm.keeper.ring_file import EXIT_AT, EXIT_CPU, EXIT_END, EXIT_RSS, EXITED, EXITED_UNKNOWN

TYPE_CHECKING = False
if TYPE_CHECKING:
    import resource
    from collections.abc import Callable
    from typing import TypeAlias

    from acpterm.keeper.process.loop import Loop

    # Wait status (None: unknown), CPU seconds, peak RSS in bytes, time of reaping in seconds since
    # boot, and the position at which the output of the child ends.
    Exit: TypeAlias = tuple[int | None, float, int, float, int]

_RSS_UNIT = 1 if sys.platform == "darwin" else 1024
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Child:
    """The process of a program. Owns its `pidfd`, if it has one; `started` 0.0 is unknown."""

    __slots__ = ("_pidfd", "_wait_result", "pid", "started")

    def __init__(self, pid: int, started: float, pidfd: int | None) -> None:
        self.pid = pid
        self.started = started
        self._pidfd = pidfd
        self._wait_result: tuple[int, int, resource.struct_rusage] | None = None

    def watch(self, loop: Loop, ended: Callable[[], None]) -> None:
        """Call `ended` when the process has ended; without a pidfd, use `check_ended`."""
        if self._pidfd is not None:
            loop.add_reader(self._pidfd, ended)

    def unwatch(self, loop: Loop) -> None:
        pidfd, self._pidfd = self._pidfd, None
        if pidfd is not None:
            loop.remove_reader(pidfd)
            os.close(pidfd)

    def exists(self) -> bool:
        """Return whether the process still exists, running or as a zombie; True if unknown."""
        # One that an earlier keeper started may be reaped by another process at any time.
        try:
            os.getpgid(self.pid)
        except ProcessLookupError:
            return False
        started = system.started_at(self.pid)
        return started == self.started or 0.0 in (started, self.started)

    def check_ended(self) -> bool:
        """Return whether a process without a pidfd has ended."""
        # An earlier keeper's child causes no SIGCHLD: called when the PTY hangs up.
        if self._pidfd is not None:
            return False
        try:
            if hasattr(os, "waitid"):
                options = os.WEXITED | os.WNOHANG | os.WNOWAIT
                return os.waitid(os.P_PID, self.pid, options) is not None
            # Without waitid the process can only be reaped. `reap` uses this result later.
            self._wait_result = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            return not self.exists()
        return self._wait_result[0] != 0

    def reap(self, end: int) -> Exit | None:
        """Reap the process, which has ended, and return the report of its exit.

        Its status is None for another keeper's child. None while a debugger traces the process.
        """
        try:
            if self._wait_result is None or self._wait_result[0] == 0:
                self._wait_result = os.wait4(self.pid, os.WNOHANG)
        except ChildProcessError:
            return None, 0.0, 0, time.clock_gettime(_CLOCK), end
        reaped, status, usage = self._wait_result
        if not reaped:
            return None
        cpu = usage.ru_utime + usage.ru_stime
        return status, cpu, usage.ru_maxrss * _RSS_UNIT, time.clock_gettime(_CLOCK), end


def write_exit(header: memoryview, report: Exit) -> None:
    # Readers ignore the report until EXITED is set, last.
    status, cpu, max_rss, at, end = report
    header[EXIT_END] = end
    header[EXIT_CPU] = int(cpu * 1e6)
    header[EXIT_RSS] = max_rss
    header[EXIT_AT] = int(at * 1e6)
    header[EXITED] = EXITED_UNKNOWN if status is None else status + 1


def read_exit(header: memoryview) -> Exit | None:
    """Return the report in a ring's header, if there is one."""
    exited = header[EXITED]
    if not exited:
        return None
    status = None if exited == EXITED_UNKNOWN else exited - 1
    return status, header[EXIT_CPU] / 1e6, header[EXIT_RSS], header[EXIT_AT] / 1e6, header[EXIT_END]
