"""Features that only Linux has, mostly information from `/proc` about processes.

On other systems `AVAILABLE` is false, and the callers use a fallback.
"""

import ctypes
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import suppress
from typing import NamedTuple

from acpterm.runtime.descriptors import EXHAUSTED

AVAILABLE = sys.platform == "linux"

# A resource limit that no kernel enforces, and its line in /proc/PID/limits (proc_pid_limits(5)).
RLIMIT_LOCKS = 10
LOCKS_LINE = b"Max file locks"

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36
# 52 fields of at most 20 digits, and a name of at most 64 bytes.
_STAT_BYTES_MAX = 4096
# The kernel's flag of a process that is ending (include/linux/sched.h).
_PF_EXITING = 0x4
_LIST_BYTES = 64 * 1024
# The errors if a process or thread has ended, or is hidden from this user.
_GONE = (FileNotFoundError, ProcessLookupError, PermissionError)
_CLOCK_TICKS = os.sysconf("SC_CLK_TCK")


def has_pidfd() -> bool:
    """Return whether kernel and Python support pidfds: descriptors that refer to a process."""
    if not (hasattr(os, "pidfd_open") and hasattr(signal, "pidfd_send_signal")):
        return False
    try:
        os.close(os.pidfd_open(os.getpid()))
    except OSError:  # an older kernel, or a filter of system calls
        return False
    return True


def become_subreaper() -> bool:
    """Make this process a subreaper: its descendants become its children when they are orphaned.

    Returns whether that succeeded.
    """
    if not AVAILABLE:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0


def forbid_inspection() -> bool:
    """Prevent this user's other processes from copying this process's descriptors and memory.

    Sets PR_SET_DUMPABLE to 0 (prctl(2)): the kernel refuses pidfd_getfd, ptrace and most of
    `/proc/PID` to processes without CAP_SYS_PTRACE, and dumps no core. An exec ends this
    protection. Returns whether the call succeeded.
    """
    if not AVAILABLE:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)) == 0


def pid_namespace() -> int:
    """Return the inode number of this process's pid namespace; 0 if it is unknown."""
    try:
        return os.stat("/proc/self/ns/pid").st_ino if AVAILABLE else 0
    except OSError:
        return 0


def resident_memory() -> int | None:
    """Return the resident memory of this process in bytes; None on systems other than Linux."""
    if not AVAILABLE:
        return None
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def trim_memory() -> None:
    """Return free heap memory to the system, if the C library supports that (malloc_trim(3)).

    Takes some 100 µs, or a millisecond if there is much to return.
    """
    if AVAILABLE and hasattr(libc := ctypes.PyDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


class ProcStat(NamedTuple):
    """The fields of `/proc/PID/stat` that identify a process and its parent (proc_pid_stat(5))."""

    pid: int
    ppid: int
    """The pid of the parent."""
    sid: int
    """The id of the session: the pid of its leader."""
    zombie: bool
    """Whether the process has ended, but was not reaped yet."""
    started: float
    """The start time in seconds since boot, in steps of a clock tick (10 ms).

    On systems other than Linux, the seconds are counted from 1970 (`processes.now`). Pid and start
    time together identify the process.
    """


def read_stat(pid: int) -> ProcStat | None:
    """Return the `ProcStat` of a process; None if the process does not exist or is hidden.

    Other errors (notably EMFILE) propagate: failing to read is not the same as finding no process.
    """
    try:
        fields = stat_fields(f"/proc/{pid}/stat")
    except _GONE:
        return None
    return ProcStat(
        pid=pid,
        ppid=int(fields[1]),
        sid=int(fields[3]),
        zombie=fields[0] in b"ZX",
        started=int(fields[19]) / _CLOCK_TICKS,
    )


def is_exiting(pid: int) -> bool:
    """Return whether a process is ending or has ended: it runs no code of its program any more."""
    try:
        return bool(int(stat_fields(f"/proc/{pid}/stat")[6]) & _PF_EXITING)
    except _GONE:
        return True


def stat_fields(path: str) -> list[bytes]:
    """Return the fields of a `stat` file of `/proc` without the first two, pid and name.

    The first field of the result is the state. `path` is the `stat` file of a process or of a
    thread (proc_pid_stat(5)). Raises `OSError` if the file cannot be read.
    """
    line = read_once(path, _STAT_BYTES_MAX)
    # The name is in brackets, and may itself contain brackets and spaces.
    return line[line.rindex(b")") + 2 :].split()


def read_once(path: str, max_bytes: int) -> bytes:
    """Return at most `max_bytes` bytes from the beginning of a file in `/proc`.

    Reads the file by one system call, so that the bytes are consistent. Raises `OSError` if the
    file cannot be read.
    """
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, max_bytes)
    finally:
        os.close(fd)


def all_stats() -> Iterator[ProcStat | None]:
    """Yield the `ProcStat` of each process; None for a process that has ended or is hidden.

    Takes some 20 µs for each process. Raises `OSError` if reading fails for another reason.
    """
    return (read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())


def name_of(pid: int) -> bytes:
    """Return the name of a process's program (`/proc/PID/comm`); empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/comm", "rb") as file:
            return file.read().rstrip(b"\n")
    except OSError:
        return b""


def arguments_of(pid: int) -> list[bytes]:
    """Return the argv of a process; empty if it cannot be read."""
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            return file.read().rstrip(b"\0").split(b"\0")
    except OSError:
        return []


def executable_of(pid: int) -> bytes | None:
    """Return the path of the file that a process executes; None if it cannot be read.

    The path is reliable: a process can change its argv at will, but not this path.
    """
    try:
        return os.readlink(b"/proc/%d/exe" % pid).removesuffix(b" (deleted)")
    except OSError:
        return None


def ignored_signals(pid: int) -> int:
    """Return the signals that a process ignores, as bits; 0 if they cannot be read.

    Signal n is bit n - 1. Raises `OSError` if no file descriptor is free.
    """
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            mask = file.read().partition(b"\nSigIgn:")[2].split(None, 1)[:1]
    except OSError as error:
        _raise_if_exhausted(error)
        return 0
    return int(mask[0], 16) if mask else 0


def has_terminal(pid: int) -> bool:
    """Return whether a process has a controlling terminal; False if this cannot be read."""
    try:
        return stat_fields(f"/proc/{pid}/stat")[4] != b"0"
    except OSError:
        return False


def ticks(started: float) -> int:
    """Convert a start time, as in `ProcStat.started`, to clock ticks since boot."""
    return round(started * _CLOCK_TICKS)


class Children:
    """The children of this process, or of another one that has a single thread, such as the keeper.

    `read` may be called again and again; until `close`, a descriptor is held.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._file: int | None = None
        # Opening the list takes longer than reading it. The threads of this process come and go.
        if pid != os.getpid():
            with suppress(*_GONE):
                self._file = _open_children(pid, pid)

    def read(self) -> set[int] | None:
        """Return their pids, including zombies; None if they cannot be read."""
        if self._file is not None:
            with suppress(*_GONE):
                return _children_in(self._file)
            return None
        found: set[int] = set()
        try:
            for task in os.listdir(f"/proc/{self._pid}/task"):
                file = _open_children(self._pid, task)
                try:
                    with suppress(ProcessLookupError):  # the thread has ended
                        found |= _children_in(file)
                finally:
                    os.close(file)
        except _GONE:
            return None
        return found

    def close(self) -> None:
        """Free the descriptor. Idempotent."""
        file, self._file = self._file, None
        if file is not None:
            os.close(file)


def _open_children(pid: int, task: int | str) -> int:
    return os.open(f"/proc/{pid}/task/{task}/children", os.O_RDONLY)


def _children_in(file: int) -> set[int]:
    found: set[int] = set()
    # Twice, because the list may omit some children while others are being reaped.
    for _ in range(2):
        listed = b""
        while more := os.pread(file, _LIST_BYTES, len(listed)):
            listed += more
        found.update(map(int, listed.split()))
    return found


def soft_limit_of(pid: int, line: bytes) -> int | None:
    """Return a soft resource limit of a process; None if it is unlimited or cannot be read.

    `line` is the limit's name in `/proc/PID/limits`, such as `LOCKS_LINE`. Raises `OSError` if no
    file descriptor is free, because then it is unknown whether the process has the limit.
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
    """Return the environment with which a process was started; empty if it cannot be read.

    The entries end with NUL. Raises `OSError` if no file descriptor is free.
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
