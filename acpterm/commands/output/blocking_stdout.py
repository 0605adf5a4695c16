"""Writes to stdout and stderr, blocking. Commands that run trio use the module `trio_stdout`.

Errors name the stream that failed. `window_size` returns the size of the terminal on stdout.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final

from acpterm.runtime.blocking_io import write_fully

STDOUT: Final = 1
STDERR: Final = 2


@contextmanager
def named(name: str) -> Iterator[None]:
    """If the block raises an `OSError` without a file name, set its file name to `name`."""
    try:
        yield
    except OSError as error:
        if error.filename is None:
            error.filename = name
        raise


def put(data: bytes) -> None:
    """Write to stdout. Raises `OSError` if it fails: `BrokenPipeError` if stdout has no reader."""
    if data:
        with named("stdout"):
            write_fully(STDOUT, data)


def note(text: str) -> None:
    with suppress(OSError):
        write_fully(STDERR, f"{text}\n".encode())


def window_size(fd: int = STDOUT) -> tuple[int, int]:
    """Return columns and rows of the terminal that `fd` refers to; 80 and 24 if unknown."""
    try:
        size = os.get_terminal_size(fd)
    except OSError:  # `fd` is no terminal, or its window was closed
        return 80, 24
    return size.columns or 80, size.lines or 24
