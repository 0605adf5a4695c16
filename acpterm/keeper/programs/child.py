"""The code that runs in a forked child until its program is executed.

The child does these steps in this order, and never returns:

1. create a process group, put it into the foreground of the PTY, and use the slave as 0, 1 and 2;
2. set the requested umask and resource limits, and change to the working directory;
3. search the program in the PATH of the program's own environment, and execute it.

If a step fails, the child prints one line on the terminal and exits with the status that a shell
uses: 127 if the program is not found, 126 if it exists but cannot be run.

Like all of the keeper, this module imports as little as possible, because a fork copies the page
tables of all memory in use. So `typing` is only imported for the type checker, and `_signal` and
`_socket` replace `signal` and `socket`: each of these three modules takes as much memory as all
other imports together.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import errno
import fcntl
import os
import resource
import termios

from acpterm.keeper.programs.leader import NAME, SOCKET_FD

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn, TypeAlias

    # argv, environment, working directory, umask, limits (resource, soft, hard), and the argv to
    # use instead if the program is not found. The types are those that marshal produces.
    Program: TypeAlias = tuple[
        list[str], dict[str, str], str, int, list[tuple[int, int, int]], list[str] | None
    ]

NOT_FOUND = 127
CANNOT_RUN = 126

# The interpreter of scripts that name no interpreter, as in execvp (POSIX, "exec", RATIONALE).
_SHELL = "/bin/sh"


def exec_program(program: Program) -> NoReturn:
    """Execute `program` on the terminal, or print why not and exit with 127 or 126."""
    argv, env, cwd, umask, rlimits, fallback_argv = program
    try:
        os.umask(umask)
        for limit, soft, hard in rlimits:
            _set_limit(limit, soft, hard)
        try:
            os.chdir(cwd)
        except OSError as error:
            _fail(CANNOT_RUN, f"{cwd}: cannot be the working directory: {error.strerror}")
        _exec(argv, env)
        if fallback_argv is not None:
            argv = fallback_argv
            _exec(argv, env)
        _fail(NOT_FOUND, f"{argv[0]}: command not found")
    except BaseException as error:  # noqa: BLE001  a child must never return into its parent's code
        _fail(CANNOT_RUN, f"{argv[0]}: cannot be started: {error}")


def lead_session(slave: int) -> None:
    """Create a session with the PTY's `slave` as its controlling terminal."""
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)


def use_terminal(slave: int) -> None:
    """Put this process into the foreground, in a group of its own, with `slave` as 0, 1 and 2."""
    os.setpgid(0, 0)
    # In the background, tcsetpgrp would stop this process.
    _signal.pthread_sigmask(_signal.SIG_BLOCK, (_signal.SIGTTOU,))
    os.tcsetpgrp(slave, os.getpid())
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    if slave > 2:
        os.close(slave)


def hold_session(sock: int, image: str | None, env: Mapping[str, str]) -> NoReturn:
    """Become the code of the leader, or `cat`, until the keeper closes its `sock`."""
    _signal.pthread_sigmask(_signal.SIG_SETMASK, _signal.valid_signals())
    if image is not None:
        os.dup2(sock, SOCKET_FD)
        os.set_inheritable(SOCKET_FD, True)
        os.execve(image, [NAME], env)  # noqa: S606  the paths are ours
    os.chdir("/")
    os.dup2(sock, 0)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.dup2(null, 2)
    os.execve("/bin/cat", [NAME], env)  # noqa: S606  the paths are ours


def reset_signals() -> None:
    for number in range(1, _signal.NSIG):
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL, SIGSTOP, and two signals that the C library reserves
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _set_limit(limit: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(limit, (soft, hard))
    except (OSError, ValueError):
        # This process cannot raise its hard limit to the requested one, so it keeps its own.
        _, ours = resource.getrlimit(limit)
        if ours != resource.RLIM_INFINITY:
            soft = ours if soft == resource.RLIM_INFINITY else min(soft, ours)
        resource.setrlimit(limit, (soft, ours))


def _exec(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Execute `argv`. Returns only if the program is not found."""
    refused: OSError | None = None
    paths = search_path(argv[0], env)
    # A failed exec costs ten times as much as a check with access(2), so likely paths come first.
    # All paths are tried afterwards, because their errors tell why the program cannot be run.
    for path in (*filter(_is_likely, paths), *paths):
        try:
            _replace(path, argv, env)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                _replace(_SHELL, [_SHELL, path, *argv[1:]], env)
            if error.errno == errno.ENOENT and os.path.lexists(path):
                _fail(CANNOT_RUN, _no_interpreter(path))
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = refused or error
    if refused is not None:
        _fail(CANNOT_RUN, f"{argv[0]}: cannot be run: {refused.strerror}")


def _is_likely(path: str) -> bool:
    return os.access(path, os.X_OK)


def _replace(path: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
    os.execve(path, list(argv), env)  # noqa: S606  the client requested a program, not a shell


def search_path(name: str, env: Mapping[str, str]) -> list[str]:
    """Return the paths at which to search for a program, in order."""
    if "/" in name:
        return [name]
    path = env.get("PATH", os.defpath)
    return [os.path.join(directory or ".", name) for directory in path.split(":")]


def _no_interpreter(path: str) -> str:
    try:
        with open(path, "rb") as script:
            first = script.readline(256)
    except OSError:
        first = b""
    if first.startswith(b"#!"):
        # A line end of Windows is a part of the name.
        interpreter = os.fsdecode(first[2:].strip(b" \t\n")).replace("\r", "\\r")
        return f"{path}: cannot be run: its interpreter {interpreter} is not there"
    return f"{path}: cannot be run: it, or a loader that it needs, is not there"


def _fail(status: int, message: str) -> NoReturn:
    try:
        os.write(2, f"acpterm: {message}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(status)
