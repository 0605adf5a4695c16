"""Blocking output to stdout and stderr, whose errors say which of the two could not be written."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from acpterm.runtime.blocking_io import write_fully

STDOUT: Final = 1
STDERR: Final = 2


@contextmanager
def named(name: str) -> Iterator[None]:
    """Name the file in an `OSError` of the block that names none, as `stdout` or `stdin`."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = name
        raise


def put(data: bytes) -> None:
    """Write to stdout. Raises `OSError`, `BrokenPipeError` if no one reads it."""
    if data:
        with named("stdout"):
            write_fully(STDOUT, data)


def note(text: str) -> None:
    """Write a line to stderr, if there is one."""
    with suppress(OSError):
        write_fully(STDERR, f"{text}\n".encode())
