"""System calls that Python has no function for, and facts from /proc."""

from __future__ import annotations

import ctypes
import os
import struct
import sys

LINUX = sys.platform == "linux"

_PR_SET_DUMPABLE = 4
_PR_SET_CHILD_SUBREAPER = 36

CLONE_PARENT = 0x8000
_CLONE_INTO_CGROUP = 0x2_0000_0000
# Containers often forbid clone3, since a filter cannot check its flags.
_SYS_CLONE = {"x86_64": 56, "aarch64": 220, "riscv64": 220}
# The number is the same on every architecture (Linux 5.3); struct clone_args, version 2 (5.7).
_SYS_CLONE3 = 435
_CLONE_ARGS = struct.Struct("=11Q")
_STAT_BYTES_MAX = 4096
_TICKS_PER_S = os.sysconf("SC_CLK_TCK")

# A PyDLL holds the GIL during the call. The child of a clone continues in this thread, so it must
# hold the GIL.
_libc = ctypes.PyDLL(None, use_errno=True)


def become_subreaper() -> None:
    """Make this process the parent of its orphaned descendants, on Linux (prctl(2))."""
    if LINUX:
        _libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def protect_memory() -> None:
    """Forbid others to trace this process or copy its descriptors. An exec resets that."""
    if LINUX:
        _libc.prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)


def clone_arguments(flags: int, cgroup: int | None) -> bytes:
    """Return struct clone_args of clone3 for a child in the group `cgroup`."""
    # With CLONE_PARENT, the exit signal must be 0: it is that of the caller.
    flags |= 0 if cgroup is None else _CLONE_INTO_CGROUP
    return _CLONE_ARGS.pack(flags, *[0] * 9, cgroup or 0)


def clone_sibling(cgroup: int | None) -> int:
    """Fork a sibling: a child of this process's parent. Return its pid, or 0 in the new process.

    It starts in the control group whose directory is open as `cgroup`. Raises `OSError`.
    """
    if cgroup is None and (number := _SYS_CLONE.get(os.uname().machine)):
        pid: int = _libc.syscall(number, CLONE_PARENT, 0, 0, 0, 0)
    else:
        arguments = clone_arguments(CLONE_PARENT, cgroup)
        pid = _libc.syscall(_SYS_CLONE3, arguments, len(arguments))
    if pid < 0:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return pid


def read_stat(pid: int) -> tuple[bytes, int, float] | None:
    """Return the state, the session id and the start in seconds since boot; None if unknown."""
    try:
        with open(f"/proc/{pid}/stat", "rb", buffering=0) as file:
            line = file.read(_STAT_BYTES_MAX)
    except OSError:
        return None
    # The name is in parentheses, and may itself contain parentheses and spaces.
    fields = line[line.rindex(b")") + 2 :].split()
    return fields[0], int(fields[3]), int(fields[19]) / _TICKS_PER_S


def started_at(pid: int) -> float:
    """Return the start time of a process in seconds since boot; 0.0 if it is unknown."""
    stat = read_stat(pid)
    return 0.0 if stat is None else stat[2]


def open_pidfd(pid: int) -> int | None:
    """Open a pidfd; None if that is not supported, or fails."""
    if sys.platform != "linux" or not hasattr(os, "pidfd_open"):
        return None
    try:
        return os.pidfd_open(pid)
    except OSError:
        return None


def children_of_this_process() -> list[int] | None:
    """Return the pids of this process's children, including zombies; None if unknown."""
    pid = os.getpid()
    try:
        with open(f"/proc/{pid}/task/{pid}/children", "rb") as file:
            return [int(child) for child in file.read().split()]
    except OSError:
        return None
