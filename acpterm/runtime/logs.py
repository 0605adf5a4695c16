"""Logging: structlog to stderr, as text or as one JSON object per line.

Rule: no secrets. The arguments, environment, input and output of programs are never logged; ids,
method names, counts and codes are. So a traceback has no local variables, and the text of an error
response, which quotes what the agent sent, is not logged either. Text that still looks like a
secret, such as a part of an exception's message, is redacted.

Logging neither waits nor fails: if stderr has no room for a line, because its reader has stopped,
the line is dropped.

Logs are bounded. A daemon that was started by a command logs to a file beside its socket, and a
repeated event, such as a connection that is refused because no file descriptor is free, could fill
the disk. So equal warnings are rate-limited (`RateLimit`), and the file is rotated (`rotate`).
"""

import contextlib
import fcntl
import io
import logging
import os
import select
import shutil
import signal
import stat
import time
from collections.abc import Callable, MutableMapping
from typing import Any, Final, TextIO

import msgspec
import structlog

from acpterm.runtime.bounded_dict import BoundedDict
from acpterm.runtime.redaction import redact, redact_event

EVENTS_MAX: Final = 10
"""The maximum number of equal warnings that are logged within `WINDOW_S` seconds."""
WINDOW_S: Final = 60.0
LOG_BYTES_MAX: Final = 1024 * 1024
"""The maximum size of a log file before rotation, and of `PATH.1`, in bytes."""
_WINDOWS_MAX: Final = 256
_LIMITED_LEVELS: Final = ("warning", "error", "critical")
# A pipe that is writable accepts this much without blocking (pipe(7), PIPE_BUF).
_WRITE_BYTES_MAX = 4096


def configure(level: str, form: str) -> None:
    """Log messages of at least `level`, such as `info`, to stderr; `form` is `text` or `json`."""
    processors: list[structlog.typing.Processor] = [
        RateLimit(),
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form == "json":
        tracebacks = structlog.tracebacks.ExceptionDictTransformer(show_locals=False)
        processors += [
            structlog.processors.ExceptionRenderer(tracebacks),
            redact_event,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ]
    else:
        processors += [
            redact_event,
            structlog.dev.ConsoleRenderer(
                colors=os.isatty(2), exception_formatter=_redacted_traceback
            ),
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=True,
    )


def log_shutdown(number: signal.Signals) -> None:
    """Log that this process shuts down because of the signal `number`."""
    structlog.get_logger("acpterm.ending").info("ending", signal=number.name)


def _redacted_traceback(out: TextIO, error: structlog.typing.ExcInfo) -> None:
    text = io.StringIO()
    structlog.dev.plain_traceback(text, error)
    out.write(redact(text.getvalue()))


class _Stderr:
    """A structlog logger that writes formatted lines to stderr without blocking."""

    # If the last line was truncated, a newline is written before the next one.

    _is_truncated = False

    def msg(self, line: str) -> None:
        """Write `line`, or the part of it that stderr has room for; drop the rest."""
        data = f"{line}\n".encode(errors="backslashreplace")
        if _Stderr._is_truncated:
            data = b"\n" + data
        for start in range(0, len(data), _WRITE_BYTES_MAX):
            if not _write(data[start : start + _WRITE_BYTES_MAX]):
                _Stderr._is_truncated = _Stderr._is_truncated or start > 0
                return
        _Stderr._is_truncated = False

    log = debug = info = warning = error = critical = msg


def _write(piece: bytes) -> bool:
    """Write `piece` to stderr if that does not block; return whether all of it was written."""
    with contextlib.suppress(OSError):
        ready = select.poll()
        ready.register(2, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in ready.poll(0)):
            return os.write(2, piece) == len(piece)
    return False


def _dumps(value: object, **_: object) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()


class RateLimit:
    """Drops a warning or error that is repeated more than `EVENTS_MAX` times in `WINDOW_S`."""

    # Equal are the level and the event. The next one has the number of dropped ones: `not_logged`.

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        # By level and event: the start of the window, the number of events in it, and the number
        # of dropped ones.
        self._windows: BoundedDict[tuple[str, str], tuple[float, int, int]] = BoundedDict(
            _WINDOWS_MAX
        )

    def __call__(
        self, logger: object, method: str, event: MutableMapping[str, Any]
    ) -> MutableMapping[str, Any]:
        """Return `event`, or raise `structlog.DropEvent` to drop it."""
        del logger
        if method not in _LIMITED_LEVELS:
            return event
        key, now = (method, str(event.get("event"))), self._clock()
        start, count, dropped = self._windows.pop(key, (now, 0, 0))
        if now - start >= WINDOW_S:
            start, count = now, 0
        is_dropped = count >= EVENTS_MAX
        if not is_dropped and dropped:
            event["not_logged"] = dropped
        self._windows[key] = start, count + 1, dropped + 1 if is_dropped else 0
        if is_dropped:
            raise structlog.DropEvent
        return event


def rotate(path: str, pid: int, fd: int = 2) -> bool:
    """Empty the log `path` if it has more than `LOG_BYTES_MAX` bytes; return whether."""
    # `path` is not renamed, because the keeper also appends to it: its end is copied to `PATH.1`. A
    # line logged meanwhile may be missing in both. `fd` may be a log that was removed, or no log.
    # The new first line is `pid`, as in the log of a new daemon.
    status = os.fstat(fd)
    if status.st_size <= LOG_BYTES_MAX:
        return False
    if _is_removed(status, fd):
        os.ftruncate(fd, 0)
        return True
    with open(path, "rb", opener=_no_link) as log:
        if not os.path.samestat(os.fstat(log.fileno()), status):
            return False
        log.seek(status.st_size - LOG_BYTES_MAX)
        with open(f"{path}.1", "wb", opener=_private) as rotated:
            shutil.copyfileobj(log, rotated)
    os.ftruncate(fd, 0)
    os.write(fd, f"{pid}\n".encode())
    return True


def _is_removed(status: os.stat_result, fd: int) -> bool:
    # A removed file that is not open in append mode is not a log file, but a temporary file.
    is_unnamed = stat.S_ISREG(status.st_mode) and status.st_nlink == 0
    return is_unnamed and bool(fcntl.fcntl(fd, fcntl.F_GETFL) & os.O_APPEND)


def _no_link(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NOFOLLOW | os.O_NONBLOCK, 0o600)
