"""Writes to stdout and stderr in trio; the module `blocking_stdout` does so without trio.

It is not an error if stdout loses its reader: the context manager `while_stdout_is_read` then
cancels the code in its block.
"""

import os
import select
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import trio

from acpterm.commands.output.blocking_stdout import STDERR, STDOUT, named
from acpterm.runtime import stdio


async def put(data: bytes) -> None:
    if data:
        with named("stdout"):
            await stdio.write_all(STDOUT, data)


async def note(text: str) -> None:
    with suppress(OSError):
        await stdio.write_all(STDERR, f"{text}\n".encode())


@asynccontextmanager
async def while_stdout_is_read() -> AsyncIterator[None]:
    """Cancel the block as soon as stdout has no reader, even if the block writes nothing to it."""
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
    """Wait until `fd`, a pipe or socket, has no reader; wait forever if it is neither."""
    with suppress(OSError):  # stdout is closed, or the event loop cannot wait for it
        mode = os.fstat(fd).st_mode
        poll = select.poll()
        poll.register(fd, 0)
        while stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode):
            # `wait_readable` returns when the other end is closed. If the pipe is also open for
            # reading, it returns for input too, so check the flags and try again later. A socket
            # often has input, so only poll it.
            if stat.S_ISFIFO(mode):
                await trio.lowlevel.wait_readable(fd)
            if any(happened & (select.POLLERR | select.POLLHUP) for _, happened in poll.poll(0)):
                return
            await trio.sleep(1)
    await trio.sleep_forever()
