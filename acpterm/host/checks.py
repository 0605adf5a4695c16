"""What a request asks for that no machine can give: refused before anything is done.

Every message says which value is wrong and what would be right.
"""

import os
from collections import OrderedDict
from collections.abc import Iterable
from typing import Final

import trio

from acpterm.jsonrpc import INVALID_PARAMS, RpcError, quoted

FRESH: Final = 1.0
REMEMBERED: Final = 64

# Its own: looks that hang, at a file system that is gone, are not to hold up anything else.
_threads = trio.CapacityLimiter(16)


def seconds(milliseconds: int) -> float:
    """Convert; a number that is too long for a float is as good as the longest time of use."""
    return min(milliseconds, 10**15) / 1000


def check_absolute(path: str) -> None:
    """Raise `RpcError` (-32602) unless `path` is absolute."""
    if not os.path.isabs(path) or "\0" in path:
        wrong = "holds a NUL character" if "\0" in path else "is not absolute"
        raise _bad_folder(path, wrong)


class Folders:
    """Folders that were found good lately: agents run one command after the other in one.

    For `FRESH` seconds nobody looks again. Should a folder vanish meanwhile, the program does not
    run all the same: it cannot enter the folder, says so on its terminal, and ends with 126.
    """

    def __init__(self) -> None:
        self._good: OrderedDict[str, float] = OrderedDict()

    async def check(self, path: str) -> None:
        """Raise as `check_folder` does; looks, in a thread, unless that was done just now."""
        now = trio.current_time()
        if now - self._good.get(path, -FRESH) < FRESH:
            return
        await trio.to_thread.run_sync(check_folder, path, abandon_on_cancel=True, limiter=_threads)
        self._good[path] = now
        self._good.move_to_end(path)
        while len(self._good) > REMEMBERED:
            self._good.popitem(last=False)


def check_folder(path: str) -> None:
    """Raise `RpcError` (-32602) unless `path` is absolute and a folder that can be entered.

    It asks the file system, which may take its time: for a thread.
    """
    check_absolute(path)
    wrong = None
    if not os.path.exists(path):
        wrong = "does not exist"
    elif not os.path.isdir(path):
        wrong = "is not a directory"
    elif not os.access(path, os.X_OK):
        wrong = "cannot be entered: permission denied"
    if wrong:
        raise _bad_folder(path, wrong)


def check_command(command: str, args: list[str] | None) -> None:
    """Raise `RpcError` (-32602) unless there is a command, of words that programs can be given."""
    if not command.strip():
        raise RpcError(
            INVALID_PARAMS,
            f"command {quoted(command)} is empty: give a program or a shell command line",
        )
    for word in (command, *(args or ())):
        if "\0" in word:
            raise RpcError(
                INVALID_PARAMS,
                f"{quoted(word)} holds a NUL character, which no program can be given",
            )


def check_environment(env: Iterable[tuple[str, str]]) -> None:
    """Raise `RpcError` (-32602) for variables that no environment can hold."""
    for name, value in env:
        if not name or "=" in name or "\0" in name + value:
            raise RpcError(
                INVALID_PARAMS,
                f"env has {quoted(name)} = {quoted(value)}: a name is not empty and holds no '=', "
                "and neither holds a NUL character",
            )


def _bad_folder(path: str, wrong: str) -> RpcError:
    return RpcError(
        INVALID_PARAMS, f"cwd {quoted(path)} {wrong}: give the absolute path of a directory"
    )
