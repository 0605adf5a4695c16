"""What is to be sent to one peer, in order, and never more than there is room for.

States: *open*, until `close` (what is in it is still sent) or until the stream breaks (what is in
it is dropped: nobody is there to read it). `put` never waits: what is first in line, and for a
socket, is sent at once as far as there is room, which spares it a turn of the loop; the rest is
for `run`. Whoever reads from the peer waits for `room` first, so that a peer that does not read its
answers is not read from either, and so does a pending request before it makes a large answer. What
is in memory is at most `high` bytes, one large answer, and the small answers of pending requests.
"""

import os
from collections.abc import Iterable
from typing import Final, Protocol

import trio

HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
CLOSE_TIMEOUT_S: Final = 3.0
"""Seconds that pending responses may take when a host closes a connection."""
SEND_TIMEOUT_S: Final = 1.0
"""Seconds that sending what is queued may take after that."""


class Store(Protocol):
    """Where state is stored that an answer tells of. See `keeper.client.KeeperClient`."""

    @property
    def is_flushed(self) -> bool:
        """Whether all that was put has left this process."""

    async def flushed(self) -> None:
        """Wait until that is so."""


class SendQueue:
    """Lines on their way to a stream, of which it is full from `high` bytes on.

    What was put into `store` before a line leaves this process before the line does.
    """

    def __init__(
        self, stream: trio.abc.SendStream, high: int = HIGH_WATER_BYTES, store: Store | None = None
    ) -> None:
        self._stream: trio.abc.SendStream | None = stream
        self._store: Final = store
        self._high: Final = high
        self._lines: list[bytes | memoryview] = []
        self._sending = False
        self._size = 0
        self._closed = False
        self._has_lines = trio.Event()
        self._drained = trio.Event()
        self._drained.set()
        self._flushed = trio.Event()

    def put(self, line: bytes) -> None:
        """Have `line` sent after all that was put before."""
        if self._closed:
            return
        sent = self._send_now(line)
        if sent == len(line):
            return
        rest = memoryview(line)[sent:] if sent else line
        self._lines.append(rest)
        self._size += len(rest)
        if self._size > self._high and self._drained.is_set():
            self._drained = trio.Event()
        self._has_lines.set()

    @property
    def is_full(self) -> bool:
        """Whether more than `high` bytes are waiting to be sent."""
        return self._size > self._high

    async def drain(self) -> None:
        """Wait until no more than `high` bytes are waiting to be sent.

        That is so when it returns: of many who wait, each finds what the one before has put.
        """
        await trio.lowlevel.checkpoint()
        while self.is_full:
            await self._drained.wait()

    async def flush(self) -> None:
        """Wait until nothing is waiting to be sent."""
        await trio.lowlevel.checkpoint()
        while self._size and not self._closed:
            await self._flushed.wait()

    def close(self) -> None:
        """Take nothing more; `run` returns when the rest is sent."""
        self._closed = True
        self._has_lines.set()
        self._flushed.set()

    def restart(self, lines: Iterable[bytes]) -> None:
        """Hold `lines`, and what is put from now on, for the stream that `connect` is given.

        The stream is lost, and what is waiting to be sent with it. `run` is not under way.
        """
        self._stream, self._sending, self._closed = None, False, False
        self._lines = list(lines)
        self._size = sum(map(len, self._lines))
        if not self.is_full:
            self._drained.set()
        elif self._drained.is_set():
            self._drained = trio.Event()
        self._has_lines.set()

    def connect(self, stream: trio.abc.SendStream) -> None:
        """Have what waits since `restart` sent to `stream`, by `run`."""
        self._stream = stream

    async def run(self) -> None:
        """Send until closed. Raises `trio.BrokenResourceError` when the peer is gone.

        Then nobody waits for room any more: there is nobody to make it.
        """
        try:
            await self._run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._lines, self._size = [], 0
            self._drained.set()
            self.close()
            raise

    async def _run(self) -> None:
        assert self._stream is not None  # noqa: S101  `connect` comes before
        while self._lines or not self._closed:
            await self._has_lines.wait()
            self._has_lines = trio.Event()
            while self._lines:
                batch, self._lines = self._lines, []
                sending = sum(map(len, batch))
                self._sending = True
                if self._store is not None and not self._store.is_flushed:
                    await self._store.flushed()
                await self._stream.send_all(batch[0] if len(batch) == 1 else b"".join(batch))
                self._sending = False
                self._size -= sending
                self._flushed.set()
                self._flushed = trio.Event()
                if self._size <= self._high:
                    self._drained.set()
            if self._closed:
                self._has_lines.set()

    def _send_now(self, line: bytes) -> int:
        """Send what a socket takes of `line` without waiting: how many bytes."""
        if self._store is not None and not self._store.is_flushed:
            return 0
        if self._lines or self._sending or not isinstance(self._stream, trio.SocketStream):
            return 0
        try:
            return os.write(self._stream.socket.fileno(), line)
        except OSError:  # there is no room; or the peer is gone, as `run` is about to find
            return 0
