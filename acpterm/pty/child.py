"""Between fork and exec: what a child does to become the program that was asked for.

Runs in the child only, in this order, and never returns:

1. leads a new session, takes the PTY's slave as its controlling terminal and as 0, 1 and 2;
2. takes the asker's umask and resource limits, and the working directory;
3. finds the program, in the PATH of the environment that it will have, and becomes it.

A step that fails is told on the terminal, in one line, and ends the child with the status that a
shell gives: 127 when the program is not found, 126 when it is there and cannot be run.

This module and `forkserver` import the standard library alone: the fork server has to stay small,
since what it has in memory is what each fork copies the map of.
"""

import errno
import fcntl
import os
import resource
import signal
import termios
from collections.abc import Mapping, Sequence
from typing import NamedTuple, NoReturn

NOT_FOUND = 127
CANNOT_RUN = 126

# What execvp uses for a script that names no interpreter (POSIX, "exec", RATIONALE).
_SHELL = "/bin/sh"


class Program(NamedTuple):
    """What to run and as whom: all that a child needs to know."""

    argv: Sequence[str]
    """The program (a path, or a name to be found in `env`'s PATH) and its arguments."""
    env: Mapping[str, str]
    """The whole environment: nothing is added to it."""
    cwd: str
    """An absolute path."""
    umask: int
    rlimits: Sequence[tuple[int, int, int]] = ()
    """Triples of resource, soft and hard limit, as for `resource.setrlimit`."""
    otherwise: Sequence[str] | None = None
    """What to be instead when there is no file of `argv`'s name: a shell, given a line."""


def become(program: Program) -> NoReturn:
    """Turn this process, whose 0, 1 and 2 are already the terminal, into `program`."""
    try:
        os.umask(program.umask)
        for limit, soft, hard in program.rlimits:
            _set_limit(limit, soft, hard)
        try:
            os.chdir(program.cwd)
        except OSError as error:
            _fail(CANNOT_RUN, f"{program.cwd}: cannot be the working directory: {error.strerror}")
        _exec(program)
    except BaseException as error:  # noqa: BLE001  a child must never return into its parent's code
        _fail(CANNOT_RUN, f"{program.argv[0]}: cannot be started: {error}")


def take_terminal(slave: int) -> None:
    """Lead a new session whose controlling terminal is `slave`, and put it at 0, 1 and 2."""
    os.setsid()
    fcntl.ioctl(slave, termios.TIOCSCTTY, 0)
    for fd in (0, 1, 2):
        os.dup2(slave, fd)
    if slave > 2:
        os.close(slave)


def reset_signals() -> None:
    """Put every signal at its default and unblock it, whatever was inherited."""
    for number in signal.valid_signals():
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())


def _set_limit(limit: int, soft: int, hard: int) -> None:
    try:
        resource.setrlimit(limit, (soft, hard))
    except (OSError, ValueError):
        # The hard limit is above ours: as near to the asker's as we may go.
        _, ours = resource.getrlimit(limit)
        if ours != resource.RLIM_INFINITY:
            soft = ours if soft == resource.RLIM_INFINITY else min(soft, ours)
        resource.setrlimit(limit, (soft, ours))


def _exec(program: Program) -> NoReturn:
    name = program.argv[0]
    refused: OSError | None = None
    for path in candidates(name, program.env):
        try:
            _replace(path, program.argv, program.env)
        except OSError as error:
            if error.errno == errno.ENOEXEC:
                _replace(_SHELL, [_SHELL, path, *program.argv[1:]], program.env)
            if error.errno == errno.ENOENT and os.path.lexists(path):
                _fail(CANNOT_RUN, _no_interpreter(path))
            if error.errno not in (errno.ENOENT, errno.ENOTDIR):
                refused = refused or error
    if refused is not None:
        _fail(CANNOT_RUN, f"{name}: cannot be run: {refused.strerror}")
    if program.otherwise is not None:
        _exec(program._replace(argv=program.otherwise, otherwise=None))
    _fail(NOT_FOUND, f"{name}: command not found")


def _replace(path: str, argv: Sequence[str], env: Mapping[str, str]) -> None:
    os.execve(path, list(argv), dict(env))  # noqa: S606  a program, and no shell, was asked for


def candidates(name: str, env: Mapping[str, str]) -> list[str]:
    """Where `name` may be, in order: itself when it holds a slash, else along `env`'s PATH."""
    if "/" in name:
        return [name]
    path = env.get("PATH", os.defpath)
    return [os.path.join(folder or ".", name) for folder in path.split(":")]


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
