"""Bounds of a log that nobody looks after: equal warnings are few, and the file is rotated.

A daemon that a command has started logs into a file beside its socket. What happens again and
again, such as a connection for which no descriptor is left, would fill the disk.
"""

import fcntl
import os
import shutil
import stat
import time
from collections import OrderedDict
from collections.abc import Callable, MutableMapping
from typing import Any, Final

import structlog

EVENTS_MAX: Final = 10
"""Equal warnings in a window of time."""
WINDOW_S: Final = 60.0
LOG_BYTES_MAX: Final = 1024 * 1024
"""Bytes of a log file, and of the one before."""
_REMEMBERED_MAX: Final = 256
_LIMITED: Final = ("warning", "error", "critical")


class RateLimit:
    """A processor of structlog's that drops warnings and errors of which there were many just now.

    Two are equal if their level and event are: what else they say may differ each time. The first
    one after some were dropped says how many.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By level and event: when the window began, how many came in it, how many were dropped.
        self._windows: OrderedDict[tuple[str, str], tuple[float, int, int]] = OrderedDict()

    def __call__(
        self, logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Return the event, or raise `structlog.DropEvent`."""
        del logger
        if method not in _LIMITED:
            return event
        key, now = (method, str(event.get("event"))), self._clock()
        began, count, dropped = self._windows.pop(key, (now, 0, 0))
        if now - began >= WINDOW_S:
            began, count = now, 0
        is_dropped = count >= EVENTS_MAX
        if not is_dropped and dropped:
            event["not_logged"] = dropped
        self._windows[key] = began, count + 1, dropped + 1 if is_dropped else 0
        if len(self._windows) > _REMEMBERED_MAX:
            self._windows.popitem(last=False)
        if is_dropped:
            raise structlog.DropEvent
        return event


def rotate(path: str, pid: int, fd: int = 2) -> bool:
    """Move what is in a log to `PATH.1` if it is long; return whether it was.

    Only if `fd`, where the log goes, is that file, or one that was removed: then its text is
    dropped. The keeper writes to it as well, both to its end; so its text is copied, and the file
    itself stays. What is logged during the copy may be lost. The first line is `pid`, the daemon's,
    as in the log of one that was just started. Raises `OSError`.
    """
    found = os.fstat(fd)
    if found.st_size <= LOG_BYTES_MAX:
        return False
    if _is_removed(found, fd):
        os.ftruncate(fd, 0)
        return True
    with open(path, "rb", opener=_no_link) as log:
        if not os.path.samestat(os.fstat(log.fileno()), found):
            return False
        log.seek(found.st_size - LOG_BYTES_MAX)
        with open(f"{path}.1", "wb", opener=_private) as before:
            shutil.copyfileobj(log, before)
    os.ftruncate(fd, 0)
    os.write(fd, f"{pid}\n".encode())
    return True


def _is_removed(found: os.stat_result, fd: int) -> bool:
    """Return whether a log has no name any more, and would fill the disk unseen.

    A temporary file that has never had a name is its maker's, and not opened to append.
    """
    is_unnamed = stat.S_ISREG(found.st_mode) and found.st_nlink == 0
    return is_unnamed and bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
