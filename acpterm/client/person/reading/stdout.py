"""Stdout, for what a terminal has printed: nobody who reads it any more is no error."""

import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from acpterm.host import stdio

STDOUT: Final = 1
STDERR: Final = 2


async def put(data: bytes) -> None:
    """Write to stdout. Raises `OSError`; within `while_read` that is dealt with if nobody reads."""
    if data:
        await stdio.write_all(STDOUT, data)


async def note(text: str) -> None:
    """Say something on stderr, if there is one."""
    with suppress(OSError):
        await stdio.write_all(STDERR, f"{text}\n".encode())


@asynccontextmanager
async def while_read() -> AsyncIterator[None]:
    """Leave the block as soon as nobody reads stdout any more, even if nothing is written."""
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(_watch, nursery.cancel_scope)
            yield
            nursery.cancel_scope.cancel()
    except* BrokenPipeError:
        pass


async def _watch(scope: trio.CancelScope) -> None:
    """Cancel when the other end of a pipe is closed: that makes it, to the kernel, readable."""
    try:
        if not stat.S_ISFIFO(os.fstat(STDOUT).st_mode):
            return
        await trio.lowlevel.wait_readable(STDOUT)
    except OSError:  # not on every system
        return
    scope.cancel()
