"""The seam: what only Linux has, behind names that say whether it is there.

Everything else in this package asks here and has another way for where the answer is no.
"""

import ctypes
import os
import signal
import sys
import termios
from collections.abc import Iterator
from typing import NamedTuple

from acpterm.runtime.descriptors import EXHAUSTED

AVAILABLE = sys.platform == "linux"

# Input flag that makes the line discipline's erase remove a whole UTF-8 character (termios(3)).
IUTF8 = 0x4000 if AVAILABLE else 0

# A resource limit that no kernel enforces, and its line in /proc/PID/limits (proc_pid_limits(5)).
RLIMIT_LOCKS = 10
LOCKS_LINE = b"Max file locks"

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def has_pidfd() -> bool:
    """Whether this kernel and this Python can wait for and signal a process by descriptor."""
    if not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # an older kernel, or a filter of system calls
        return False
    return True


def become_subreaper() -> bool:
    """Make orphaned descendants this process's children; whether it could be done."""
    if not AVAILABLE:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0


def forbid_inspection() -> bool:
    """Keep this user's other processes from copying our descriptors and memory.

    That is PR_SET_DUMPABLE 0 (prctl(2)): pidfd_getfd, ptrace and most of `/proc/PID` are refused
    to processes without CAP_SYS_PTRACE, and no core is dumped. An exec makes a process inspectable
    again. Return whether it could be done.
    """
    if not AVAILABLE:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) == 0


def pid_namespace() -> int:
    """Return the number of the pid namespace that this process's pids are of; 0 if unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino if AVAILABLE else 0
    except OSError:
        return 0


def resident_memory() -> int | None:
    """Give the bytes of memory that this process has in use; None where that is not told."""
    if not AVAILABLE:
        return None
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def trim_memory() -> None:
    """Give the system back what the heap has free, with the GNU C library (malloc_trim(3)).

    Takes some 100 µs, or a millisecond where there is much to give back.
    """
    if AVAILABLE and hasattr(libc := ctypes.PyDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


class ProcStat(NamedTuple):
    """The fields of `/proc/PID/stat` that say whose a process is (proc_pid_stat(5))."""

    pid: int
    ppid: int
    sid: int
    zombie: bool
    started: float
    """Seconds since boot, in steps of a clock tick (10 ms). With the pid, an identity."""


def read_stat(pid: int) -> ProcStat | None:
    """Read one process's; None when there is no such process, or it is hidden from us.

    Other errors are raised, EMFILE above all: who cannot look must not take it for an empty place.
    """
    try:
        fields = _stat_fields(pid)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return ProcStat(
        pid=pid,
        ppid=int(fields[1]),
        sid=int(fields[3]),
        zombie=fields[0] in b"ZX",
        started=int(fields[19]) / _CLOCK_TICKS,
    )


def _stat_fields(pid: int) -> list[bytes]:
    """Return the fields of `/proc/PID/stat` behind the name: the state first. Raises `OSError`."""
    with open(f"/proc/{pid}/stat", "rb") as file:
        line = file.read()
    # The name, in brackets, may itself hold brackets and spaces.
    return line[line.rindex(b")") + 2 :].split()


def all_stats() -> Iterator[ProcStat | None]:
    """Read every process's, some 20 µs each; None for one that has gone meanwhile."""
    return (read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())


def name_of(pid: int) -> bytes:
    """Return the name of a process's program (`/proc/PID/comm`); empty if it cannot be seen."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().rstrip(b"\n")
    except OSError:
        return b""


def arguments_of(pid: int) -> list[bytes]:
    """Return the arguments of a process, its name first; empty if they cannot be seen."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def has_terminal(pid: int) -> bool:
    """Return whether a process has a controlling terminal; False if it cannot be seen."""
    try:
        return _stat_fields(pid)[4] != b"0"
    except OSError:
        return False


def ticks(started: float) -> int:
    """Return `ProcStat.started` in clock ticks, as the kernel counts."""
    return round(started * _CLOCK_TICKS)


def children(pid: int) -> set[int] | None:
    """Return the children of a process, zombies too; None where the kernel does not list them.

    The kernel may leave out some while others are being reaped: it is read twice.
    """
    found: set[int] = set()
    try:
        for _ in range(2):
            for task in os.listdir(f"/proc/{pid}/task"):
                found |= _children_of_task(pid, task)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None
    return found


def _children_of_task(pid: int, task: str) -> set[int]:
    try:
        with open(f"/proc/{pid}/task/{task}/children", "rb", buffering=0) as file:
            return {int(child) for child in file.read().split()}
    except ProcessLookupError:  # that thread has ended
        return set()


def soft_limit_of(pid: int, line: bytes) -> int | None:
    """Return the soft limit of a process that `line` of `/proc/PID/limits` begins with.

    None if it is unlimited or cannot be seen.
    """
    try:
        with open(f"/proc/{pid}/limits", "rb", buffering=0) as file:
            limits = file.read()
    except OSError as error:
        _raise_if_exhausted(error)
        return None
    value = limits.partition(line)[2].split(None, 1)[:1]
    return int(value[0]) if value and value[0].isdigit() else None


def environ_of(pid: int) -> bytes:
    """Return the environment that a process was started with; empty when it may not be read.

    Raises `OSError` when no descriptor is left to look: that is not to find nothing.
    """
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError as error:
        _raise_if_exhausted(error)
        return b""


def _raise_if_exhausted(error: OSError) -> None:
    if error.errno in EXHAUSTED:
        raise error


def set_utf8_input(fd: int) -> None:
    """Tell the line discipline of the terminal `fd` that its input is UTF-8."""
    if IUTF8:
        attributes = termios.tcgetattr(fd)
        attributes[0] |= IUTF8
        termios.tcsetattr(fd, termios.TCSANOW, attributes)
