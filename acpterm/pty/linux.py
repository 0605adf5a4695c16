"""Features that only Linux has, mostly information from `/proc` about processes.

On other systems `AVAILABLE` is false, and the callers use a fallback.
"""

import ctypes
import os
import signal
import struct
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
_SLICE_NS = 100_000  # the kernel's minimum
# The number of the system call, which the C library does not wrap before glibc 2.41.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# size, policy, flags, nice, priority, runtime, deadline, period
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_RESET_ON_FORK = 0x01


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
    """Make this process the parent of its orphaned descendants; return whether it worked."""
    if not AVAILABLE:
        return False
    libc = ctypes.CDLL(None, use_errno=True)
    return int(libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)) == 0


def forbid_inspection() -> bool:
    """Prevent this user's other processes from copying this process's descriptors and memory.

    With PR_SET_DUMPABLE 0 (prctl(2)) the kernel refuses pidfd_getfd, ptrace and most of `/proc/PID`
    to processes without CAP_SYS_PTRACE, and dumps no core. An exec ends that. Returns whether it
    worked.
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
    """Return the resident memory of this process in bytes; None if unknown."""
    if not AVAILABLE:
        return None
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def trim_memory() -> None:
    """Return free heap memory to the system: 100 µs, or a millisecond if there is much."""
    if AVAILABLE and hasattr(libc := ctypes.PyDLL(None), "malloc_trim"):
        libc.malloc_trim(0)


class ProcStat(NamedTuple):
    """What identifies a process and its parent (proc_pid_stat(5))."""

    pid: int
    ppid: int
    sid: int  # the session: the pid of its leader
    zombie: bool  # has ended, and was not reaped yet
    # Seconds since boot, in clock ticks of 10 ms; since 1970 on systems other than Linux. With the
    # pid it identifies the process.
    started: float


def read_stat(pid: int) -> ProcStat | None:
    """Return the `ProcStat` of a process; None if it does not exist or is hidden.

    Other errors (notably EMFILE) are raised: failing to read is not the same as finding no process.
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
    """Return whether a process runs no code of its program any more."""
    try:
        return bool(int(stat_fields(f"/proc/{pid}/stat")[6]) & _PF_EXITING)
    except _GONE:
        return True


def stat_fields(path: str) -> list[bytes]:
    """Return the fields of a `stat` file from the state on. Raises `OSError`."""
    line = read_once(path, _STAT_BYTES_MAX)
    # The name is in brackets, and may itself contain brackets and spaces.
    return line[line.rindex(b")") + 2 :].split()


def read_once(path: str, max_bytes: int) -> bytes:
    """Read by one system call, so that the bytes are consistent. Raises `OSError`."""
    fd = os.open(path, os.O_RDONLY)
    try:
        return os.read(fd, max_bytes)
    finally:
        os.close(fd)


def all_stats() -> Iterator[ProcStat | None]:
    """Yield each process, None for one that has ended or is hidden: 20 µs each."""
    return (read_stat(int(name)) for name in os.listdir("/proc") if name.isdigit())


def name_of(pid: int) -> bytes:
    """Return the name of a process's program; empty if it cannot be read."""
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
    """Return the path of the executed file, which the process cannot change at will."""
    try:
        return os.readlink(b"/proc/%d/exe" % pid).removesuffix(b" (deleted)")
    except OSError:
        return None


def ignored_signals(pid: int) -> int:
    """Return signal n as bit n - 1. Raises `OSError` if no descriptor is free."""
    try:
        with open(f"/proc/{pid}/status", "rb") as file:
            mask = file.read().partition(b"\nSigIgn:")[2].split(None, 1)[:1]
    except OSError as error:
        _raise_if_exhausted(error)
        return 0
    return int(mask[0], 16) if mask else 0


def has_terminal(pid: int) -> bool:
    """Return whether a process has a controlling terminal; False if unknown."""
    try:
        return stat_fields(f"/proc/{pid}/stat")[4] != b"0"
    except OSError:
        return False


def ticks(started: float) -> int:
    """Convert a start time to clock ticks since boot."""
    return round(started * _CLOCK_TICKS)


class Children:
    """The children of this process, or of another one that has a single thread."""

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
    """Return the soft limit on a line of `/proc/PID/limits`; None if unlimited or unreadable.

    Raises `OSError` if no descriptor is free: then it is unknown whether the process has the limit.
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
    """Return the environment at the start. Raises `OSError` if no descriptor is free."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return file.read()
    except OSError as error:
        _raise_if_exhausted(error)
        return b""


def _raise_if_exhausted(error: OSError) -> None:
    if error.errno in EXHAUSTED:
        raise error


def request_short_slices(pid: int) -> None:
    """Request short time slices for a process (0: this one), for fast responses.

    Since Linux 6.12, a process with short slices preempts others when it wakes up; it gets no more
    CPU time. Its children are scheduled as usual. Nothing happens with a negative nice value, a
    policy other than SCHED_OTHER, or an older system.
    """
    number = _SCHED_SETATTR.get(os.uname().machine)
    if sys.platform != "linux" or number is None:
        return
    try:
        nice = os.getpriority(os.PRIO_PROCESS, pid)
        if nice < 0 or os.sched_getscheduler(pid) != os.SCHED_OTHER:
            return
    except OSError:
        return
    attributes = _ATTRIBUTES.pack(
        _ATTRIBUTES.size, os.SCHED_OTHER, _RESET_ON_FORK, nice, 0, _SLICE_NS, 0, 0
    )
    ctypes.CDLL(None).syscall(number, pid, attributes, 0)
