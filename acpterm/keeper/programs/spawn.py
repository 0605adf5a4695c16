"""Start a program on a new PTY, as a child of the keeper.

There are three ways; the first way that supports the request is used.

1. `posix_spawn`: the child runs no Python code. The keeper changes its own directory, umask and
   limits around the call, which is safe because the keeper has a single thread. This way is used
   only if these limits are harmless to the keeper. To start in a control group, it needs glibc 2.39
   or newer.
2. `clone3` into the control group, or `fork`: `child.exec_program` runs in the child, and prints on
   the terminal why a program cannot be executed. Also used if `posix_spawn` fails.
3. `ptyprocess`: on systems other than Linux, where a PTY's slave does not necessarily become the
   controlling terminal of a session leader that opens the slave.

The keeper keeps the slave open until the child has opened it, so a terminal cannot hang up before
its program has started.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import contextlib
import errno
import fcntl
import os
import resource
import select
import struct
import sys
import termios

from acpterm.keeper.programs import cgroup_spawn, child, system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import NoReturn

    from acpterm.keeper.programs.child import Program

SPARE_DESCRIPTORS = 32
"""Descriptors reserved for messages of the worker: if fewer are free, no program is started."""
_SETTLE_TIMEOUT_MS = 1000
_IUTF8 = 0x4000 if system.LINUX else 0
# Linux's RLIMIT_LOCKS, which no kernel enforces. It marks a terminal's processes
# (`pty.tracking.marks`).
_RLIMIT_LOCKS = 10
# Limits that the keeper can lower for a moment without harm to itself.
_HARMLESS = {_RLIMIT_LOCKS} | {
    getattr(resource, name)
    for name in ("RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE")
    if hasattr(resource, name)
}


def spawn(program: Program, cols: int, rows: int, cgroup: int | None) -> tuple[int, int, str]:
    """Start a program on a new PTY; return its pid, the PTY's master, and the way that was used.

    The way is `posix_spawn`, `clone3`, `fork` or `ptyprocess`. `cgroup` is a descriptor of the
    directory of the control group to start in; None for the keeper's group. If the program cannot
    be found or executed, the child prints a message, and exits with 127 or 126. Raises `OSError`,
    and leaves nothing behind, if no PTY, process or descriptor is available.
    """
    _require_descriptors()
    if not system.LINUX:
        return ptyprocess_spawn(program, cols, rows)
    master, slave = os.openpty()
    try:
        # `openpty` makes both descriptors non-inheritable. The child gets the slave by its path or
        # as 0, 1 and 2.
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, cols, 0, 0))
        attributes = termios.tcgetattr(slave)
        attributes[0] |= _IUTF8
        termios.tcsetattr(slave, termios.TCSANOW, attributes)
        pid = None
        if cgroup is None or cgroup_spawn.is_available():
            pid = _posix_spawn(program, slave, cgroup)
        if pid is not None:
            return pid, master, "posix_spawn"
        return _fork(program, slave, cgroup), master, "fork" if cgroup is None else "clone3"
    except BaseException:
        os.close(master)
        raise
    finally:
        os.close(slave)


def _require_descriptors() -> None:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    lowest = os.dup(0)
    os.close(lowest)
    if soft != resource.RLIM_INFINITY and lowest >= soft - SPARE_DESCRIPTORS:
        number = errno.EMFILE
        raise OSError(
            number,
            f"{os.strerror(number)}: the keeper may have {soft} descriptors (ulimit -n), and the"
            f" last {SPARE_DESCRIPTORS} are reserved",
        )


def _posix_spawn(program: Program, slave: int, cgroup: int | None) -> int | None:
    """Start a program by `posix_spawn`; return its pid, or None if another way must be used.

    `slave` is a descriptor of the PTY's slave. `cgroup` is a descriptor of the directory of the
    control group to start in; None for that of the keeper.
    """
    if sys.platform != "linux":
        # On other systems a session leader that opens a PTY does not get it as its terminal.
        return None
    argv, env, cwd, umask, limits, _ = program
    changes = _limit_changes(limits)
    path = _path_of(slave)
    if changes is None or path is None:
        return None
    try:
        here = os.open(".", os.O_PATH | os.O_DIRECTORY)
    except PermissionError:  # the keeper could not return there
        here = os.open("/", os.O_PATH | os.O_DIRECTORY)
    mask = os.umask(umask)
    try:
        os.chdir(cwd)
        executable = next(filter(_can_execute, child.search_path(argv[0], env)), None)
        if executable is None:
            return None
        for limit, (soft, hard), _ in changes:
            resource.setrlimit(limit, (soft, hard))
        if cgroup is not None:
            return cgroup_spawn.spawn(executable, argv, env, path, cgroup)
        return os.posix_spawn(
            executable,
            argv,
            env,
            file_actions=[
                (os.POSIX_SPAWN_OPEN, 0, path, os.O_RDWR, 0),
                (os.POSIX_SPAWN_DUP2, 0, 1),
                (os.POSIX_SPAWN_DUP2, 0, 2),
            ],
            setsid=True,
            setsigmask=[],
            setsigdef=_SIGNALS,
        )
    except (OSError, ValueError):
        return None
    finally:
        for limit, _, ours in changes:
            resource.setrlimit(limit, ours)
        os.umask(mask)
        # An error here would lose the pid of a started program.
        with contextlib.suppress(OSError):
            os.fchdir(here)
        os.close(here)


def _path_of(slave: int) -> str | None:
    """Return the path of a PTY's slave; None if /dev/pts is not this PTY's file system."""
    try:
        return os.ttyname(slave)
    except OSError:
        return None


def _can_execute(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def _limit_changes(
    limits: Sequence[tuple[int, int, int]],
) -> list[tuple[int, tuple[int, int], tuple[int, int]]] | None:
    """Return the changes of the keeper's limits by which a spawned child inherits `limits`.

    `limits` has the resource, the soft and the hard limit for each limit of the program. Each
    change has the resource, the program's soft and hard limit to set before the spawn, and the
    keeper's soft and hard limit to restore after the spawn.

    Returns None if a change could harm the keeper: use another way to spawn.
    """
    changes = []
    for limit, soft, hard in limits:
        ours = resource.getrlimit(limit)
        if (soft, hard) == ours:
            continue
        if limit not in _HARMLESS or hard != ours[1]:
            return None
        changes.append((limit, (soft, hard), ours))
    return changes


def _fork(program: Program, slave: int, cgroup: int | None) -> int:
    settled, settling = os.pipe()
    try:
        pid = os.fork() if cgroup is None else system.clone_into(cgroup)
        if pid == 0:
            _run_child(program, slave, settling)
        os.close(settling)
        settling = -1
        # Wait until the child has the terminal or has exited, so that a signal or a Ctrl-C right
        # after the response finds the child in the foreground.
        wait = select.poll()
        wait.register(settled, select.POLLIN)
        wait.poll(_SETTLE_TIMEOUT_MS)
        return pid
    finally:
        os.close(settled)
        if settling >= 0:
            os.close(settling)


def _run_child(program: Program, slave: int, settling: int) -> NoReturn:
    try:
        child.reset_signals()
        child.login_tty(slave)
        os.close(settling)
        child.exec_program(program)
    finally:
        os._exit(child.CANNOT_RUN)


def ptyprocess_spawn(program: Program, cols: int, rows: int) -> tuple[int, int, str]:
    """Start a program by ptyprocess; return the program's pid, and the PTY's master.

    The third item of the result is `ptyprocess`, the name of this way to start a program.
    """
    import ptyprocess  # noqa: PLC0415  only where the other ways do not work

    def run_in_child() -> None:
        child.reset_signals()
        child.exec_program(program)

    # `exec_program` never returns, so /bin/sh is never run. ptyprocess requires the name of a
    # program that exists.
    process = ptyprocess.PtyProcess.spawn(
        ["/bin/sh"], preexec_fn=run_in_child, dimensions=(rows, cols), pass_fds=()
    )
    # Duplicate the master: ptyprocess sleeps and closes its own when the object is collected.
    master = os.dup(process.fd)
    process.fileobj.close()
    process.closed = True
    return process.pid, master, "ptyprocess"


_SIGNALS = sorted(_signal.valid_signals())
