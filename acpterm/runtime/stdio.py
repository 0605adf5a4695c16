"""stdin and stdout as a trio stream: pipes, sockets, terminals or files.

Rule: no flags are set on stdin and stdout, because other processes may share them. In particular
they stay blocking.

- A read first waits until the descriptor is readable. A file is read at once, because the event
  loop cannot wait for it, and a read of it never blocks for long.
- A write runs in a thread, because it can block although the descriptor is writable: a pipe is
  writable if it has room for a single byte. If the writing task is cancelled, the thread continues,
  but does not keep the process from exiting.
- Each write uses a duplicate of the descriptor, which its thread closes. So the stream can close
  its own descriptor while a write is still running.

State: `take_stdio`, called once at the start of the process, moves stdin and stdout to new
descriptors that only the stream uses. From then on descriptor 0 is `/dev/null` and 1 is stderr, so
that a stray print does not corrupt the protocol.
"""

import os
import select
import threading

import trio

from acpterm.runtime.blocking_io import take_descriptors, write_fully
from acpterm.runtime.threads import run_blocking


class StdioStream(trio.abc.Stream):
    """A stream over two descriptors, which it owns, for one reading and one writing task."""

    def __init__(self, reads: int, writes: int) -> None:
        self._reads = reads
        self._writes = writes

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Wait for input; empty at the end. A cancelled call consumes nothing."""
        if self._reads < 0:
            raise trio.ClosedResourceError
        while True:
            try:
                await trio.lowlevel.wait_readable(self._reads)
            except PermissionError:  # epoll's error for a file, which is always readable
                await trio.lowlevel.checkpoint()
            try:
                return os.read(self._reads, max_bytes or 65536)
            except BlockingIOError:  # another process set it non-blocking, and has read first
                continue
            except OSError as error:
                raise trio.BrokenResourceError(f"stdin: {error}") from error

    def has_hung_up(self) -> bool:
        """Return whether the writing end of the input was closed; data may be left."""
        poll = select.poll()
        poll.register(self._reads, 0)
        return any(event & (select.POLLHUP | select.POLLERR) for _, event in poll.poll(0))

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`, if not cancelled. Raises `trio.BrokenResourceError`."""
        if self._writes < 0:
            raise trio.ClosedResourceError
        try:
            await write_all(self._writes, bytes(data))
        except OSError as error:
            raise trio.BrokenResourceError(f"stdout: {error}") from error

    async def wait_send_all_might_not_block(self) -> None:
        """Return without waiting: there is no way to know that a write will not block."""
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


class FileStream(trio.abc.SendStream):
    """A stream that sends to a descriptor of the caller, by a thread: it stays blocking."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        """Write all of `data`. Raises `trio.BrokenResourceError` if that fails."""
        try:
            await write_all(self._fd, bytes(data))
        except OSError as error:
            raise trio.BrokenResourceError(str(error)) from error

    async def wait_send_all_might_not_block(self) -> None:
        """Return without waiting: there is no way to know that a write will not block."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Do nothing: the caller owns the descriptor."""
        await trio.lowlevel.checkpoint()


def take_stdio() -> StdioStream:
    """Move stdin and stdout to a stream, so that no other code can read or write them."""
    return StdioStream(*take_descriptors())


async def write_all(fd: int, data: bytes) -> None:
    """Write all of `data` to `fd` in a thread, which continues if this task is cancelled."""
    await _write_in_thread(os.dup(fd), data)


async def _write_in_thread(fd: int, data: bytes) -> None:
    """Write all of `data` to `fd` in a thread; close `fd`, also if cancelled before."""
    # Either the thread or this task closes the descriptor: the first one to acquire the lock. That
    # is this task only if the thread was never started.
    closer = threading.Lock()

    def write() -> None:
        if closer.acquire(blocking=False):
            try:
                write_fully(fd, data)
            finally:
                os.close(fd)

    try:
        await run_blocking(write, abandon_on_cancel=True)
    finally:
        if closer.acquire(blocking=False):
            os.close(fd)
