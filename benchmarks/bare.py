"""The baselines: what it takes without a host. Run by `processes.Bare`, alone in its process.

Reads requests, one a line: a function of this file, how often, and the program's words, between
tabs. Answers each with the nanoseconds that each time took, on a line.
"""

import os
import sys
import time

sys.path.append(sys.argv[1])

from ptyprocess import PtyProcess

_BUFFER = bytearray(64 * 1024)


def spawn(argv: list[str]) -> int:
    """Until `ptyprocess` has spawned the program."""
    before = time.perf_counter_ns()
    process = PtyProcess.spawn(argv)
    taken = time.perf_counter_ns() - before
    os.waitpid(process.pid, 0)
    _forget(process)
    return taken


def spawn_and_wait(argv: list[str]) -> int:
    """Until `ptyprocess` has spawned the program and it has exited."""
    before = time.perf_counter_ns()
    process = PtyProcess.spawn(argv)
    os.waitpid(process.pid, 0)
    taken = time.perf_counter_ns() - before
    _forget(process)
    return taken


def read(argv: list[str]) -> int:
    """From the program's start until all that it wrote is read, and it has exited."""
    before = time.perf_counter_ns()
    pid, fd = os.forkpty()
    if not pid:
        os.execv(argv[0], argv)
    buffers = [_BUFFER]
    try:
        while os.readv(fd, buffers):
            pass
    except OSError:  # EIO: the program's side is closed
        pass
    os.waitpid(pid, 0)
    taken = time.perf_counter_ns() - before
    os.close(fd)
    return taken


def notice(argv: list[str]) -> int:
    """From the last instruction of a program that prints the time until it is waited for."""
    pid, fd = os.forkpty()
    if not pid:
        os.execv(argv[0], argv)
    os.waitpid(pid, 0)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    printed = os.read(fd, 100)
    os.close(fd)
    return now - int(printed)


def _forget(process: PtyProcess) -> None:
    # Its own `close` sleeps.
    process.fileobj.close()
    process.closed = True


for _line in sys.stdin:
    _what, _count, *_argv = _line.rstrip("\n").split("\t")
    print(*[globals()[_what](_argv) for _ in range(int(_count))], flush=True)
