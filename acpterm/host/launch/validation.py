"""Checks the values of a create request, before anything is started.

Every error message names the invalid value, and says what would be valid.
"""

import os
import resource
import struct
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Final

import trio

from acpterm.host.launch.command import ARGUMENT_BYTES_MAX
from acpterm.jsonrpc import INVALID_PARAMS, RpcError, quote
from acpterm.pty import linux
from acpterm.runtime.bounded_dict import BoundedDict
from acpterm.runtime.threads import run_blocking

# Limits of execve(2) on Linux: 32 pages for one string with its NUL; for all strings together a
# quarter of the stack limit, at least 32 pages and at most three quarters of the default stack
# limit of 8 MiB. Other systems limit only the sum.
STRING_BYTES_MAX: Final = 32 * os.sysconf("SC_PAGE_SIZE") - 1 if linux.AVAILABLE else sys.maxsize
_TOTAL_BYTES_MIN: Final = 128 * 1024
_TOTAL_BYTES_MAX: Final = 6 * 1024 * 1024
_POINTER_BYTES: Final = struct.calcsize("P")
# How many characters of a too long argument or variable an error message quotes.
_EXCERPT_MAX: Final = 64

PATH_MAX: Final = 4096

FRESH_S: Final = 1.0
"""For how long a directory that was valid is checked without a thread."""
REMEMBERED_MAX: Final = 64
"""How many valid directories a `DirectoryCache` remembers."""

# A separate limiter: checks that hang in a dead file system must not use up other threads.
_threads = trio.CapacityLimiter(16)


def seconds(milliseconds: int) -> float:
    # Larger numbers do not fit into a float.
    return min(milliseconds, 10**15) / 1000


def check_absolute(path: str, name: str = "cwd", expected: str = "a directory") -> None:
    """Raise `RpcError` (-32602) unless `path` is absolute, not too long, and without NUL."""
    if len(path) > PATH_MAX:
        problem = f"has {len(path)} characters, and {PATH_MAX} is the most"
        raise _bad_path(path, problem, name, expected)
    if not os.path.isabs(path) or "\0" in path:
        problem = "holds a NUL character" if "\0" in path else "is not absolute"
        raise _bad_path(path, problem, name, expected)


class DirectoryCache:
    """Checks directories, and caches valid ones: agents run many commands in one directory."""

    def __init__(self) -> None:
        self._good: BoundedDict[str, float] = BoundedDict(REMEMBERED_MAX)

    async def check(self, path: str) -> None:
        await self._find(path, check_directory)

    async def nearest(self, path: str) -> str:
        """Return `path`, or its nearest parent that exists."""
        return await self._find(path, _check_nearest)

    async def _find(self, path: str, find: Callable[[str], str]) -> str:
        now = trio.current_time()
        if now - self._good.get(path, -FRESH_S) < FRESH_S and _is_dir(path):
            return path
        found = await run_blocking(partial(find, path), abandon_on_cancel=True, limiter=_threads)
        self._good[found] = now
        self._good.move_to_end(found)
        return found


def _is_dir(path: str) -> bool:
    # This does not block for a path that was valid just now: even for a directory on a file server,
    # the kernel remembers the answer for seconds.
    return os.path.isdir(path)


def _check_nearest(path: str) -> str:
    check_absolute(path)
    while not os.path.lexists(path):
        path = os.path.dirname(path.rstrip("/")) or "/"
    return check_directory(path)


def check_directory(path: str) -> str:
    """Return `path`; raise `RpcError` (-32602) unless it is an accessible directory, absolute.

    The file system may block: call this in a thread.
    """
    check_absolute(path)
    problem = None
    if not os.path.exists(path):
        problem = "does not exist"
    elif not os.path.isdir(path):
        problem = "is not a directory"
    elif not os.access(path, os.X_OK):
        problem = "cannot be entered: permission denied"
    if problem:
        raise _bad_path(path, problem)
    return path


def directory_of(cwd: str | None, cwd_bytes: bytes | None) -> str | None:
    """Return the directory that a request names, if any; `cwd_bytes` is not empty, and wins."""
    return os.fsdecode(cwd_bytes) if cwd_bytes else cwd or None


def check_command(command: str, args: list[str] | None) -> None:
    if not command.strip():
        raise RpcError(
            INVALID_PARAMS,
            f"command {quote(command)} is empty: give a program or a shell command line",
        )
    for word in (command, *(args or ())):
        if "\0" in word:
            raise RpcError(
                INVALID_PARAMS,
                f"{quote(word)} holds a NUL character, which no program can be given",
            )


def check_size(
    command: str,
    args: Sequence[str] | None,
    env: Mapping[str, str | None],
    rlimits: Iterable[tuple[int, int, int]],
) -> None:
    """Raise `RpcError` (-32602) if arguments and environment are too large for execve(2).

    See execve(2), "Limits on size of arguments and environment". Without `args`, `command` is shell
    text, which may have any size: it does not count where it is read from a file.
    """
    words = _shell_words(command) if args is None else (command, *args)
    limit = total_bytes_max(rlimits)
    # The kernel counts each string with its NUL and a pointer, and the program's path once more.
    size = (_POINTER_BYTES + 1) * (len(words) + len(env) + 1)
    if size <= limit:
        for word in words:
            size += _check_string(word, "is one argument of")
        for name, value in env.items():
            size += _check_string(f"{name}={value or ''}", "is a variable of")
        size += len(os.fsencode(words[0]))
    if size > limit:
        raise RpcError(
            INVALID_PARAMS,
            f"the command {quote(words[0])}, its {len(words) - 1} arguments and its {len(env)} "
            f"variables have {size} bytes or more together: a program can be given at most {limit} "
            "here (ARG_MAX, a quarter of its stack limit); write them to a file, and give its path",
        )


def _shell_words(text: str) -> tuple[str, ...]:
    shell = ("/bin/sh", "-c")
    is_short = len(text) <= ARGUMENT_BYTES_MAX and len(os.fsencode(text)) <= ARGUMENT_BYTES_MAX
    return (*shell, text) if is_short else shell


def _check_string(string: str, what: str) -> int:
    """Return the size in bytes of an argument or variable. Raises `RpcError` if it is too large."""
    # Encoding takes long, and is not needed if the string has too many characters already.
    size = len(string) if len(string) > STRING_BYTES_MAX else len(os.fsencode(string))
    if size > STRING_BYTES_MAX:
        raise RpcError(
            INVALID_PARAMS,
            f"{quote(string, _EXCERPT_MAX)} {what} {size} bytes or more: one may have at most "
            f"{STRING_BYTES_MAX} here (MAX_ARG_STRLEN); write it to a file, and give its path",
        )
    return size


def total_bytes_max(rlimits: Iterable[tuple[int, int, int]]) -> int:
    """Return the maximum size of arguments and environment together, in bytes."""
    if not linux.AVAILABLE:
        return os.sysconf("SC_ARG_MAX")
    own, _ = resource.getrlimit(resource.RLIMIT_STACK)
    stack = next((soft for number, soft, _ in rlimits if number == resource.RLIMIT_STACK), own)
    quarter = _TOTAL_BYTES_MAX if stack == resource.RLIM_INFINITY else stack // 4
    return max(_TOTAL_BYTES_MIN, min(quarter, _TOTAL_BYTES_MAX))


def check_environment(env: Iterable[tuple[str, str | None]]) -> None:
    """Raise `RpcError` (-32602) if a variable in `env` is not possible in an environment."""
    for name, found in env:
        value = found or ""
        if not name or "=" in name or "\0" in name + value:
            raise RpcError(
                INVALID_PARAMS,
                f"env has {quote(name)} = {quote(value)}: a name is not empty and holds no '=', "
                "and neither holds a NUL character",
            )


def _bad_path(
    path: str, problem: str, name: str = "cwd", expected: str = "a directory"
) -> RpcError:
    return RpcError(
        INVALID_PARAMS, f"{name} {quote(path)} {problem}: give the absolute path of {expected}"
    )
