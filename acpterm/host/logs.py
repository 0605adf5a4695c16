"""Logging: structlog to stderr, as text or as one JSON object a line.

Rule: no secrets. What programs are given (arguments, environment, input) and what they print is
never logged; ids, names of methods, counts and reasons are.
"""

import logging
import sys

import msgspec
import structlog


def configure(level: str, form: str) -> None:
    """Send what is at least of `level` to stderr; `form` is `text` or `json`."""
    processors: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
    ]
    if form == "json":
        processors += [
            structlog.processors.dict_tracebacks,
            structlog.processors.JSONRenderer(serializer=_dumps),
        ]
    else:
        processors += [structlog.dev.ConsoleRenderer(colors=sys.stderr.isatty())]
    structlog.configure(
        processors=processors,
        wrapper_class=structlog.make_filtering_bound_logger(
            logging.getLevelNamesMapping()[level.upper()]
        ),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )


def _dumps(value: object, **_: object) -> str:
    return msgspec.json.encode(value, enc_hook=repr).decode()
