"""Find and signal processes by an identity that stays unique when a pid is reused.

The system may reuse a pid once its process was reaped. So the identity of a process is its pid
together with its start time (`ProcStat`). On Linux both are read from `/proc`, on other systems by
psutil.
"""

import errno
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial

from acpterm.pty import linux
from acpterm.pty.linux import ProcStat

_HAS_PIDFD = linux.has_pidfd()


def now() -> float:
    """Return the current time, to compare with `ProcStat.started`."""
    if sys.platform == "linux":
        return time.clock_gettime(time.CLOCK_BOOTTIME)
    else:  # noqa: RET505  mypy reports a plain return as unreachable
        return time.time()


def read_all() -> Iterator[ProcStat | None]:
    """Yield all processes, or None. Raises `OSError` if no descriptor is free."""
    return linux.all_stats() if linux.AVAILABLE else portable_read_all()


def portable_read_all() -> Iterator[ProcStat | None]:
    """Yield the processes that psutil can read, on systems without `/proc`."""
    import psutil  # noqa: PLC0415  installed only on systems that need it

    for process in psutil.process_iter():
        try:
            with process.oneshot():
                found = ProcStat(
                    pid=process.pid,
                    ppid=process.ppid(),
                    sid=os.getsid(process.pid),
                    zombie=process.status() == psutil.STATUS_ZOMBIE,
                    started=process.create_time(),
                )
        except (psutil.Error, OSError):
            continue  # it has just ended, or may not be inspected
        yield found


def identity(pid: int) -> ProcStat | None:
    """Return the process that has `pid` now."""
    if linux.AVAILABLE:
        return linux.read_stat(pid)
    return next((stat for stat in portable_read_all() if stat and stat.pid == pid), None)


def arguments_of(pid: int) -> list[bytes]:
    """Return the argv of a process; empty if it cannot be read."""
    if linux.AVAILABLE:
        return linux.arguments_of(pid)
    import psutil  # noqa: PLC0415  as above

    try:
        return [os.fsencode(word) for word in psutil.Process(pid).cmdline()]
    except (psutil.Error, OSError):
        return []


def environment_of(pid: int) -> dict[bytes, bytes]:
    """Return the environment at the start. Raises `OSError` if no descriptor is free."""
    if linux.AVAILABLE:
        entries = linux.environ_of(pid).split(b"\0")
        parts = (entry.partition(b"=") for entry in entries if entry)
        return {name: value for name, _, value in parts}
    import psutil  # noqa: PLC0415  as above

    try:
        found = psutil.Process(pid).environ()
    except (psutil.Error, OSError):
        return {}
    return {os.fsencode(name): os.fsencode(value) for name, value in found.items()}


def is_interactive_shell(pid: int) -> bool:
    """Return whether a process ignores SIGTERM and SIGTSTP, as shells with job control do.

    False where that is unknown. Raises `OSError` if no descriptor is free.
    """
    ignored = linux.ignored_signals(pid) if linux.AVAILABLE else 0
    return all(ignored >> (number - 1) & 1 for number in (signal.SIGTERM, signal.SIGTSTP))


def send(process: ProcStat, number: int) -> bool:
    """Send a signal; return whether it was sent. A process that has reused the pid gets none.

    Raises `OSError` if no descriptor is free.
    """
    if sys.platform != "linux" or not _HAS_PIDFD:
        return _send_by_pid(process, number)
    pidfd = _open(process.pid)
    if pidfd is None:
        return False
    try:
        # `pidfd` refers to the process that has the pid now. Check that this is `process`.
        return _is_still(process) and _deliver(lambda: signal.pidfd_send_signal(pidfd, number))
    finally:
        os.close(pidfd)


def send_to_members(pids: list[int], number: int, members: Callable[[], Iterable[int]]) -> None:
    """Send a signal to each of `pids` that `members()` still returns.

    It is called after a pidfd was opened for each, so a process outside the group that reuses a pid
    gets none; without pidfds, just before each signal. Raises `OSError` if descriptors are lacking.
    """
    if sys.platform != "linux" or not _HAS_PIDFD:
        for pid in pids:
            process = identity(pid)
            if process is not None and pid in members():
                _send_by_pid(process, number)
        return
    pidfds: dict[int, int] = {}
    try:
        for pid in pids:
            if (pidfd := _open(pid)) is not None:
                pidfds[pid] = pidfd
        remaining = set(members())
        # Signal in the order of `pids`, which usually has older processes first: if a shell's child
        # ended before the shell, the shell would print a message about it.
        for pid, pidfd in pidfds.items():
            if pid in remaining:
                _deliver(partial(signal.pidfd_send_signal, pidfd, number))
    finally:
        for pidfd in pidfds.values():
            os.close(pidfd)


def _open(pid: int) -> int | None:
    if sys.platform != "linux":
        return None
    try:
        return os.pidfd_open(pid)
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise
        return None  # there is no such process


def _send_by_pid(process: ProcStat, number: int) -> bool:
    # The pid could be reused between the check and the signal. Without pidfds, this is inevitable.
    return _is_still(process) and _deliver(lambda: os.kill(process.pid, number))


def _is_still(process: ProcStat) -> bool:
    found = identity(process.pid)
    return found is not None and found.started == process.started and not found.zombie


def _deliver(call: Callable[[], None]) -> bool:
    try:
        call()
    except (ProcessLookupError, PermissionError):
        return False
    return True
