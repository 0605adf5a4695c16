"""The queue of lines to send to one peer, in order, with backpressure.

State: *open*; *closed* by `close` (queued lines are still sent), or because the stream broke
(queued lines are dropped). `put` never waits. If the queue is empty and the stream is a socket,
`put` sends at once as many bytes as the socket accepts, so the line need not wait for the event
loop; `run` sends the rest.

The task that reads the peer's messages awaits `drain` before each message. So while a peer does not
read its responses, its messages are not read either. A request handler that builds a large response
first awaits `drain`, then builds the response and calls `put` without waiting in between. So the
queue holds at most `high_water` bytes, one large response, and the small responses to pending
requests.
"""

import os
from typing import Final, Protocol

import trio

HIGH_WATER_BYTES: Final = 4 * 1024 * 1024
CLOSE_TIMEOUT_S: Final = 3.0
"""Seconds that a host waits for pending responses when it closes a peer's connection."""
SEND_TIMEOUT_S: Final = 1.0
"""Seconds that a host waits until the queued lines are sent, when it closes a connection.

This wait follows the wait for pending responses (`CLOSE_TIMEOUT_S`).
"""


class Store(Protocol):
    """A worker's store in the keeper, for its successor: `keeper.client.KeeperClient`."""

    @property
    def is_flushed(self) -> bool:
        """Whether all state that was put into the store was sent to the keeper."""

    async def flushed(self) -> None:
        """Wait until all state that was put into the store was sent to the keeper."""


class SendQueue:
    """Lines to send to a stream, full beyond `high_water` bytes."""

    # With a `store`, a line is sent only after all state in the store was sent to the keeper.

    def __init__(
        self,
        stream: trio.abc.SendStream,
        high_water: int = HIGH_WATER_BYTES,
        store: Store | None = None,
    ) -> None:
        self._stream: Final = stream
        self._store: Final = store
        self._high_water: Final = high_water
        self._lines: list[bytes | memoryview] = []
        self._sending = False
        self._size = 0
        self._closed = False
        # `put` is called for each message: it wakes `run`, and not the tasks that wait for `run`.
        self._queued: Final = trio.lowlevel.ParkingLot()
        self._sent: Final = trio.lowlevel.ParkingLot()

    def put(self, line: bytes) -> None:
        """Send `line`, without waiting, after earlier ones; nothing once closed."""
        if self._closed:
            return
        sent = self._send_now(line)
        if sent == len(line):
            return
        rest = memoryview(line)[sent:] if sent else line
        self._lines.append(rest)
        self._size += len(rest)
        self._queued.unpark_all()

    @property
    def is_full(self) -> bool:
        """Whether more than `high_water` bytes are queued."""
        return self._size > self._high_water

    async def drain(self) -> None:
        """Wait until no more than `high_water` bytes are queued."""
        # Another task may have put lines before this one continues, so each checks again.
        await trio.lowlevel.checkpoint()
        while self.is_full:
            await self._sent.park()

    async def flush(self) -> None:
        """Wait until the queue is empty or closed."""
        await trio.lowlevel.checkpoint()
        while self._size and not self._closed:
            await self._sent.park()

    def close(self) -> None:
        """Accept no more lines; `run` returns once the queued ones are sent."""
        self._closed = True
        self._queued.unpark_all()
        self._sent.unpark_all()

    async def run(self) -> None:
        """Send lines until closed and empty. If the stream breaks, raises `BrokenResourceError`."""
        # Then the queued lines are dropped, and the tasks that wait in `drain` are woken.
        try:
            await self._run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._lines, self._size = [], 0
            self.close()
            raise

    async def _run(self) -> None:
        while self._lines or not self._closed:
            if not self._lines:
                await self._queued.park()
                continue
            batch, self._lines = self._lines, []
            sending = sum(map(len, batch))
            self._sending = True
            if self._store is not None and not self._store.is_flushed:
                await self._store.flushed()
            for data in _joined(batch):
                await self._stream.send_all(data)
            self._sending = False
            self._size -= sending
            self._sent.unpark_all()

    def _send_now(self, line: bytes) -> int:
        """Send as much of `line` as possible without waiting; return how many bytes were sent."""
        if self._store is not None and not self._store.is_flushed:
            return 0
        if self._lines or self._sending or not isinstance(self._stream, trio.SocketStream):
            return 0
        try:
            return os.write(self._stream.socket.fileno(), line)
        except OSError:  # no room; or the peer has closed, which `run` will report
            return 0


def _joined(lines: list[bytes | memoryview]) -> list[bytes | memoryview]:
    try:
        return lines if len(lines) == 1 else [b"".join(lines)]
    except MemoryError:
        return lines
