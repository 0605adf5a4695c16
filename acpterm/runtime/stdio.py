"""stdin and stdout as a trio stream, whatever they are: pipes, sockets, terminals, files.

Rule: the descriptors may be shared with the parent, and their file description with it, so nothing
is ever set on them; above all they stay blocking. Reading waits for the descriptor to be readable
first; what cannot be waited for (a file) never blocks for long. Writing is done in a thread, since
a pipe that has room for one byte counts as writable. A writer that is cancelled leaves the thread
to its write: the process can end all the same. So each write has a descriptor of its own, which its
thread closes: the stream's may be closed, and its number be another file's, while a write goes on.

States: `take_over`, once, at the start of the process, makes the stream the only user of what was 0
and 1; from then on 0 reads nothing and 1 is stderr, so that no stray print ends up in the protocol.
"""

import os
import select
import threading

import trio

from acpterm.runtime.blocking_io import write_fully
from acpterm.runtime.threads import run_blocking


class StdioStream(trio.abc.Stream):
    """The stream over two descriptors, which it owns. Reading and writing by one task each."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads = reads
        self._writes = writes

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Read at least one byte, at most `max_bytes`; nothing is the end of the input.

        Cancelled, it has read nothing.
        """
        if self._reads < 0:
            raise trio.ClosedResourceError
        while True:
            try:
                await trio.lowlevel.wait_readable(self._reads)
            except PermissionError:  # what epoll says of a file: it is always readable
                await trio.lowlevel.checkpoint()
            try:
                return os.read(self._reads, max_bytes or 65536)
            except BlockingIOError:  # somebody else made it non-blocking, and was faster
                continue
            except OSError as error:
                raise trio.BrokenResourceError(f"stdin: {error}") from error

    def has_hung_up(self) -> bool:
        """Whether whoever wrote to it has closed their end, read to its end or not (poll(2))."""
        looked = select.poll()
        looked.register(self._reads, 0)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in looked.poll(0))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`. Cancelled, it has written an unknown part of it.

        Raises `trio.BrokenResourceError` when nobody reads any more.
        """
        if self._writes < 0:
            raise trio.ClosedResourceError
        try:
            await write_all(self._writes, bytes(data))
        except OSError as error:
            raise trio.BrokenResourceError(f"stdout: {error}") from error

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once: a pipe that is writable may block all the same."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close both descriptors."""
        reads, self._reads = self._reads, -1
        writes, self._writes = self._writes, -1
        for fd in (reads, writes):
            if fd >= 0:
                trio.lowlevel.notify_closing(fd)
                os.close(fd)
        await trio.lowlevel.checkpoint()


def take_over() -> StdioStream:
    """Make the stream of this process's stdin and stdout. Raises `OSError` when stdout is closed.

    A closed stdin is one that has ended.
    """
    return StdioStream(*take_descriptors())


def take_descriptors() -> tuple[int, int]:
    """Take stdin and stdout over, as `take_over` does: two descriptors to read and to write."""
    if 1 in open_missing():
        raise OSError("stdout is closed: there is nowhere to answer to")
    taken = os.dup(0), os.dup(1)
    _to_null(0)
    os.dup2(2, 1)
    return taken


def open_missing() -> list[int]:
    """Open those of 0, 1 and 2 that are closed, so that no other file gets their number.

    They lead nowhere then. Gives which they were. To be called before anything else is opened.
    """
    missing = [fd for fd in (0, 1, 2) if not _is_open(fd)]
    for fd in missing:
        _to_null(fd)
    return missing


def _is_open(fd: int) -> bool:
    try:
        os.fstat(fd)
    except OSError:
        return False
    return True


def _to_null(fd: int) -> None:
    null = os.open(os.devnull, os.O_RDWR)
    if null != fd:
        os.dup2(null, fd)
        os.close(null)


async def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to `fd`, which stays open. Cancelled, it goes on in its thread.

    Raises `OSError` when nobody reads any more.
    """
    await _write_in_thread(os.dup(fd), data)


async def _write_in_thread(fd: int, data: bytes) -> None:
    """Write all of `data` to `fd`, and close it; also when cancelled, then or later."""
    # Whoever has it first closes the descriptor: the thread, or this task if none has begun.
    begun = threading.Lock()

    def write() -> None:
        if begun.acquire(blocking=False):
            try:
                write_fully(fd, data)
            finally:
                os.close(fd)

    try:
        await run_blocking(write, abandon_on_cancel=True)
    finally:
        if begun.acquire(blocking=False):
            os.close(fd)
