"""Logging: structlog to stderr, as text or as one JSON object a line.

Rule: no secrets. What programs are given (arguments, environment, input) and what they print is
never logged; ids, names of methods, counts and codes are. So a traceback has no local variables,
and the text of an error that an agent is told, which quotes what it sent, is not logged either.

Logging neither waits nor fails: what stderr has no room for, since nobody reads it, is dropped.
Warnings that are equal are few (`log_limits`).
"""

import contextlib
import logging
import os
import select
import signal

import msgspec
import structlog

from acpterm.runtime.log_limits import RateLimit

# A pipe that can be written to at all takes as much at once (pipe(7), PIPE_BUF).
_PIECE = 4096


def configure(level: str, form: str) -> None:
    """Send what is at least of `level` to stderr; `form` is `text` or `json`."""
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
            structlog.processors.JSONRenderer(serializer=_dumps),
        ]
    else:
        plain = structlog.dev.plain_traceback
        processors += [
            structlog.dev.ConsoleRenderer(colors=os.isatty(2), exception_formatter=plain)
        ]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=lambda *_: _Stderr(),
        cache_logger_on_first_use=True,
    )


def shorten(number: signal.Signals) -> None:
    """Say that this process ends since a signal told it to. See `ending.told_to_end`."""
    structlog.get_logger("acpterm.ending").info("ending", signal=number.name)


class _Stderr:
    """A logger of structlog's: its methods take a finished line.

    State: whether the last line was cut short; then the next one begins a new line first.
    """

    _cut = False

    def msg(self, line: str) -> None:
        """Write a line, or as much of it as there is room for."""
        data = f"{line}\n".encode(errors="backslashreplace")
        if _Stderr._cut:
            data = b"\n" + data
        for start in range(0, len(data), _PIECE):
            if not _write(data[start : start + _PIECE]):
                _Stderr._cut = _Stderr._cut or start > 0
                return
        _Stderr._cut = False

    log = debug = info = warning = error = critical = msg


def _write(piece: bytes) -> bool:
    """Write `piece` to stderr if that needs no waiting; whether it was written."""
    with contextlib.suppress(OSError):
        ready = select.poll()
        ready.register(2, select.POLLOUT)
        if any(event & select.POLLOUT for _, event in ready.poll(0)):
            return os.write(2, piece) == len(piece)
    return False


def _dumps(value: object, **_: object) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()
