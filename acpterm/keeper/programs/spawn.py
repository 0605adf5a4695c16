"""Spawning: a new PTY, and a child that becomes a program on it.

Ways, the first that can do what is asked:

1. `posix_spawn`: the child needs no Python before it executes. Directory, umask and limits are this
   process's own around the call, which nothing else can notice: it has one thread. Only for limits
   that cannot hurt the keeper meanwhile, and into a control group only with glibc 2.39.
2. `clone3` into the control group, or `fork`: `child.become` does the rest in the child, and says
   on the terminal why a program cannot be executed. Whatever `posix_spawn` refuses comes here too.
3. `ptyprocess`: systems other than Linux, on which opening a PTY's slave as the leader of a session
   need not make it the controlling terminal.

The keeper holds the slave until the child has it: a terminal is never hung up before its program
has begun.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
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
"""Spawns are refused before the last ones are used: they are for the messages of the worker."""
_SETTLE_TIMEOUT_MS = 1000
_IUTF8 = 0x4000 if system.LINUX else 0
# Linux's RLIMIT_LOCKS, which no kernel enforces: it marks a terminal's processes (`pty.marks`).
_RLIMIT_LOCKS = 10
# Whose soft limit may be the program's for a moment without harm to the keeper.
_HARMLESS = {_RLIMIT_LOCKS} | {
    getattr(resource, name)
    for name in ("RLIMIT_NOFILE", "RLIMIT_CORE", "RLIMIT_MEMLOCK", "RLIMIT_MSGQUEUE")
    if hasattr(resource, name)
}


def spawn(program: Program, cols: int, rows: int, cgroup: int | None) -> tuple[int, int, str]:
    """Start a program on a new PTY: its pid, the PTY's master, and the way that was taken.

    A program that cannot be found or executed is a child that says so and ends with 127 or 126.
    Raises `OSError` when there is no PTY, process or descriptor to be had; nothing is left then.
    """
    _require_descriptors()
    if not system.LINUX:
        return ptyprocess_spawn(program, cols, rows)
    master, slave = os.openpty()
    try:
        # Ours alone: programs get the slave, by its path or as 0, 1 and 2.
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
    """Spawn without a fork of this process; None when it has to be done the other way."""
    if sys.platform != "linux":
        # On other systems a session leader that opens a PTY does not get it as its terminal.
        return None
    argv, env, cwd, umask, limits, _ = program
    changes = _changes_of_limits(limits)
    path = _path_of(slave)
    if changes is None or path is None:
        return None
    here = os.open(".", os.O_PATH | os.O_DIRECTORY)
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
        os.fchdir(here)
        os.close(here)


def _path_of(slave: int) -> str | None:
    """Return the path of a PTY's slave; None where /dev/pts is not this PTY's file system."""
    try:
        return os.ttyname(slave)
    except OSError:
        return None


def _can_execute(path: str) -> bool:
    return os.access(path, os.X_OK) and not os.path.isdir(path)


def _changes_of_limits(
    limits: Sequence[tuple[int, int, int]],
) -> list[tuple[int, tuple[int, int], tuple[int, int]]] | None:
    """Return what to set around a spawn: limit, for the program, ours. None: not this way."""
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
        # Until the child has the terminal, or has ended: a signal or a Ctrl-C that comes right
        # after the answer shall find it in the foreground.
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
    """Spawn by ptyprocess; see `spawn`."""
    import ptyprocess  # noqa: PLC0415  only where the other ways do not work

    def run_in_child() -> None:
        child.reset_signals()
        child.exec_program(program)

    # `become` never returns, so the program named here is never run; it only has to exist, since
    # ptyprocess looks for it first.
    process = ptyprocess.PtyProcess.spawn(
        ["/bin/sh"], preexec_fn=run_in_child, dimensions=(rows, cols), pass_fds=()
    )
    # Ours alone: ptyprocess would close its own after sleeping, when it is collected.
    master = os.dup(process.fd)
    process.fileobj.close()
    process.closed = True
    return process.pid, master, "ptyprocess"


_SIGNALS = sorted(_signal.valid_signals())
