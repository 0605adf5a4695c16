"""Between fork and exec: what a child does to become the program that was asked for.

Runs in the child only, in this order, and never returns:

1. leads a new session, takes the PTY's slave as its controlling terminal and as 0, 1 and 2;
2. takes the asker's umask and resource limits, and the working directory;
3. finds the program, in the PATH of the environment that it will have, and becomes it.

A step that fails is told on the terminal, in one line, and ends the child with the status that a
shell gives: 127 when the program is not found, 126 when it is there and cannot be run.

It imports as little as possible, like all of the keeper: a fork copies the map of what the keeper
has in memory. So there is no `typing` here (but for the type checker), and no `signal` and `socket`
but their cores: each of the three is as large as all the rest.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import errno
import fcntl
import os
import resource
import termios

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import NoReturn, TypeAlias

    # argv, environment, directory, umask, limits (resource, soft, hard), and the argv to use
    # instead when there is no such program. As it came by marshal: lists and dicts.
    Program: TypeAlias = tuple[
        list[str], dict[str, str], str, int, list[tuple[int, int, int]], list[str] | None
    ]

NOT_FOUND = 127
CANNOT_RUN = 126

# What execvp uses for a script that names no interpreter (POSIX, "exec", RATIONALE).
_SHELL = "/bin/sh"


def exec_program(program: Program) -> NoReturn:
    """Turn this process, whose 0, 1 and 2 are already the terminal, into `program`."""
    argv, env, cwd, umask, rlimits, otherwise = program
    try:
        os.umask(umask)
        for limit, soft, hard in rlimits:
            _set_limit(limit, soft, hard)
        try:
            os.chdir(cwd)
        except OSError as error:
            _fail(CANNOT_RUN, f"{cwd}: cannot be the working directory: {error.strerror}")
        _exec(argv, env)
        if otherwise is not None:
            argv = otherwise
            _exec(argv, env)
        _fail(NOT_FOUND, f"{argv[0]}: command not found")
    except BaseException as error:  # noqa: BLE001  a child must never return into its parent's code
        _fail(CANNOT_RUN, f"{argv[0]}: cannot be started: {error}")


def login_tty(slave: int) -> None:
    """Lead a new session whose controlling terminal is `slave`, and put it at 0, 1 and 2."""
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    if slave > 2:
        os.close(slave)


def reset_signals() -> None:
    """Put every signal at its default and unblock it, whatever was inherited."""
    for number in range(1, _signal.NSIG):
        try:
            _signal.signal(number, _signal.SIG_DFL)
        except (OSError, ValueError):
            continue  # SIGKILL, SIGSTOP, and the two that the C library keeps for itself
    _signal.pthread_sigmask(_signal.SIG_SETMASK, ())


def _set_limit(limit: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(limit, (soft, hard))
    except (OSError, ValueError):
        # The hard limit is above ours: as near to the asker's as we may go.
        _, ours = resource.getrlimit(limit)
        if ours != resource.RLIM_INFINITY:
            soft = ours if soft == resource.RLIM_INFINITY else min(soft, ours)
        resource.setrlimit(limit, (soft, ours))


def _exec(argv: Sequence[str], env: Mapping[str, str]) -> None:
    """Become `argv`; return when there is no such file."""
    refused: OSError | None = None
    paths = search_path(argv[0], env)
    # An exec that fails costs ten times a look. What does not look right is tried in the end, too:
    # the errors tell why.
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
    os.execve(path, list(argv), env)  # noqa: S606  a program, and no shell, was asked for


def search_path(name: str, env: Mapping[str, str]) -> list[str]:
    """Where `name` may be, in order: itself when it holds a slash, else along `env`'s PATH."""
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
        interpreter = os.fsdecode(first[2:].strip())
        return f"{path}: cannot be run: its interpreter {interpreter} is not there"
    return f"{path}: cannot be run: it, or a loader that it needs, is not there"


def _fail(status: int, message: str) -> NoReturn:
    try:
        os.write(2, f"acpterm: {message}\n".encode(errors="surrogateescape"))
    finally:
        os._exit(status)
