"""Diagnostics for the user: writes the keeper's log and the lock file, and describes wait statuses.

The log is the keeper's stderr. The keeper's pid and an error message are written into the daemon's
lock file. A wait status is the value that waitpid(2) returns for a process that has ended.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import contextlib
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from acpterm.keeper.process.store import EntryStore

_CRASH_SIGNALS = {
    _signal.SIGSEGV,
    _signal.SIGABRT,
    _signal.SIGBUS,
    _signal.SIGILL,
    _signal.SIGFPE,
    _signal.SIGTRAP,
    _signal.SIGSYS,
}
LOCK_KEY = "lock"  # the entry whose first descriptor is the daemon's lock file


def log(message: str) -> None:
    """Write one line to the log; drop it if writing would block."""
    # Up to PIPE_BUF bytes, writing to a pipe is atomic.
    line = f"acpterm keeper[{os.getpid()}]: {message}".encode(errors="backslashreplace")
    with contextlib.suppress(OSError):
        if can_log():
            os.write(2, line[: select.PIPE_BUF - 1] + b"\n")


def can_log() -> bool:
    """Return whether the log accepts `PIPE_BUF` bytes without blocking."""
    # It blocks if it is a full pipe, or a terminal that is stopped by Ctrl-S.
    poll = select.poll()
    poll.register(2, select.POLLOUT)
    return bool(poll.poll(0))


def log_location() -> str:
    """Return where the user finds the keeper's log."""
    if "JOURNAL_STREAM" in os.environ:
        return "journalctl --user -u acpterm"
    path = ""
    with contextlib.suppress(OSError):
        path = os.readlink("/proc/self/fd/2")
    return path if path.startswith("/") and path != os.devnull else "its standard error"


def write_lock_file(store: EntryStore, message: str) -> None:
    """Write the keeper's pid, and `message`, into the lock file, which acpterm's commands read."""
    entry = store.entries.get(LOCK_KEY)
    fds = None if entry is None else entry.descriptors()
    if fds:
        try:
            os.ftruncate(fds[0], 0)
            os.pwrite(fds[0], f"{os.getpid()}\n{message}\n".encode(errors="backslashreplace"), 0)
        except OSError as error:
            log(f"the lock file cannot be written: {error}")


def describe_wait_status(status: int) -> str:
    """Describe a wait status, such as `was killed by signal 9`."""
    code = os.waitstatus_to_exitcode(status)
    return f"was killed by signal {-code}" if code < 0 else f"ended with status {code}"


def has_crashed(status: int) -> bool:
    """Return whether a wait status is an end by a signal such as SIGSEGV."""
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) in _CRASH_SIGNALS


def was_killed(status: int) -> bool:
    return os.WIFSIGNALED(status) and os.WTERMSIG(status) == _signal.SIGKILL


def shell_status(status: int) -> int:
    """Return the exit status that a shell would report for a wait status."""
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code
