"""The baselines without a daemon: programs on a PTY. `processes.Bare` runs this file as a process.

Each line of stdin is a request: the name of a function of this file, the number of calls, and the
program's argv, separated by tabs. The response is one line: the nanoseconds that each call took.

The first argument of this process is the directory from which `ptyprocess` is imported.
"""

import os
import sys
import time

sys.path.append(sys.argv[1])

from ptyprocess import PtyProcess

_BUFFER = bytearray(64 * 1024)


def spawn(argv: list[str]) -> int:
    """Return the nanoseconds until `ptyprocess` has spawned the program."""
    before = time.perf_counter_ns()
    process = PtyProcess.spawn(argv)
    taken = time.perf_counter_ns() - before
    os.waitpid(process.pid, 0)
    _forget(process)
    return taken


def spawn_and_wait(argv: list[str]) -> int:
    """Return the nanoseconds until `ptyprocess` has spawned the program and it was reaped."""
    before = time.perf_counter_ns()
    process = PtyProcess.spawn(argv)
    os.waitpid(process.pid, 0)
    taken = time.perf_counter_ns() - before
    _forget(process)
    return taken


def read(argv: list[str]) -> int:
    """Return the nanoseconds from the program's start until its output is read and it is reaped."""
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
    """Return the nanoseconds from the program's last instruction until waitpid returns.

    The program prints the time of that instruction.
    """
    pid, fd = os.forkpty()
    if not pid:
        os.execv(argv[0], argv)
    os.waitpid(pid, 0)
    now = time.clock_gettime_ns(time.CLOCK_MONOTONIC)
    printed = os.read(fd, 100)
    os.close(fd)
    return now - int(printed)


def _forget(process: PtyProcess) -> None:
    # `process.close` sleeps.
    process.fileobj.close()
    process.closed = True


for _line in sys.stdin:
    _what, _count, *_argv = _line.rstrip("\n").split("\t")
    print(*[globals()[_what](_argv) for _ in range(int(_count))], flush=True)
