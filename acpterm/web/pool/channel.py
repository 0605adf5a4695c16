"""The sending side of a PTY pool's WebSocket: one message at a time, as fast as the client reads.

Several tasks send on one socket: errors, the output of each attached terminal, and the events. A
task waits for its turn, and only then makes its message. So if a client stops reading, all of its
tasks wait, and at most one message is in memory.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Final, Protocol, TypeAlias

import trio

from acpterm.web.pool.messages import ServerMessage, encode

Send: TypeAlias = Callable[[ServerMessage], Awaitable[None]]


class TextSocket(Protocol):
    """A WebSocket. Both methods raise `trio.BrokenResourceError` once the connection is lost."""

    async def receive(self) -> str | bytes | None:
        """Return the next frame, text or binary; None once the client has closed the socket."""

    async def send(self, text: str) -> None:
        """Send a text frame, and wait until another frame can be sent."""


class Channel:
    """Sends messages on one socket, for tasks that take turns in the order of their requests."""

    def __init__(self, socket: TextSocket, connection: trio.CancelScope) -> None:
        self._socket: Final = socket
        self._connection: Final = connection
        self._lock: Final = trio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Send]:
        """Wait until this task may send; yield the function that sends, for use in the block."""
        async with self._lock:
            yield self._send

    async def send(self, message: ServerMessage) -> None:
        async with self.turn() as send:
            await send(message)

    async def _send(self, message: ServerMessage) -> None:
        try:
            await self._socket.send(encode(message))
        except trio.BrokenResourceError:
            self._connection.cancel()
            await trio.sleep_forever()


class SendingTask:
    """A task that sends on a channel, and that can be stopped, but never within its turn."""

    def __init__(self, channel: Channel) -> None:
        self._channel: Final = channel
        self._scope: Final = trio.CancelScope()
        self._has_turn = False
        self._is_stopped = False

    def stop(self) -> None:
        """End the task: at once, or when its turn is over. Idempotent."""
        self._is_stopped = True
        # Cancelled while it sends a frame, it would lose the frame and break the socket.
        if not self._has_turn:
            self._scope.cancel()

    async def run(self) -> None:
        """Send in turns (`turn`) until all is sent, or `stop` is called."""
        with self._scope:
            await self._send_all()

    async def _send_all(self) -> None:
        raise NotImplementedError

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Send]:
        async with self._channel.turn() as send:
            if self._is_stopped:
                # `stop` was called just before the turn came: end here, before the first message.
                await trio.lowlevel.checkpoint()
            self._has_turn = True
            try:
                yield send
            finally:
                self._has_turn = False
                if self._is_stopped:
                    self._scope.cancel()
