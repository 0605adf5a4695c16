"""Stdout, for what is printed for as long as somebody reads it: nobody who does is no error."""

import os
import select
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final

import trio

from acpterm.client.user.output.print import named
from acpterm.runtime import stdio

STDOUT: Final = 1
STDERR: Final = 2


async def put(data: bytes) -> None:
    """Write to stdout. Raises `OSError`; within `while_read` that is dealt with if nobody reads."""
    if data:
        with named("stdout"):
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
    await _unread(STDOUT)
    scope.cancel()


async def _unread(fd: int) -> None:
    """Wait until nobody is left to read what is written to a pipe; for ever, if it is none."""
    with suppress(OSError):  # there is no stdout, or no way to wait for that on this system
        mode = os.fstat(fd).st_mode
        poll = select.poll()
        poll.register(fd, 0)
        while stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            # That the other end is gone is told to whoever waits for anything. A socket may have
            # input too, and so may a pipe that is open for both: then it is looked at again later.
            if stat.S_ISFIFO(mode):
                await trio.lowlevel.wait_readable(fd)
            if any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0)):
                return
            await trio.sleep(1)
    await trio.sleep_forever()
