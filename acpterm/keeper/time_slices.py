"""Short time slices, so that acpterm responds fast while programs use all processors.

Since version 6.12, Linux lets a process request the length of its time slices (sched_setattr(2),
`sched_runtime`). When a process with short slices wakes up, it preempts processes with longer
slices; it gets no more CPU time than before. Older kernels ignore the request.
"""

import ctypes
import os
import struct
import sys

_SLICE_NS = 100_000  # the kernel's minimum
# The number of the system call, which the C library does not wrap before glibc 2.41.
_SCHED_SETATTR = {"x86_64": 314, "aarch64": 274}
# size, policy, flags, nice, priority, runtime, deadline, period
_ATTRIBUTES = struct.Struct("=IIQiIQQQ")
_RESET_ON_FORK = 0x01


def request_short_slices(pid: int) -> None:
    """Request short time slices for the process `pid`; 0 means this process.

    Children of the process are scheduled as usual. Does nothing if the process has a negative nice
    value or a scheduling policy other than SCHED_OTHER, or if the system does not support the
    request.
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
