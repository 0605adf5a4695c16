"""The sending side of a PTY pool's WebSocket: one message at a time, when the client has room.

Several tasks send on one socket: the replies to messages, the output of each attached terminal, and
the events. Each takes turns, and makes its message in its turn. So a client that stops reading
holds up all of them, and at most one message is in memory.
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
        """Send a text frame, and wait until there is room for another one."""


class Channel:
    """Sends messages on one socket, for tasks that take turns, in the order of their requests.

    If the connection is lost, the scope `connection` is cancelled.
    """

    def __init__(self, socket: TextSocket, connection: trio.CancelScope) -> None:
        self._socket: Final = socket
        self._connection: Final = connection
        self._lock: Final = trio.Lock()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Send]:
        """Wait until this task may send; yield the function with which it does in the block."""
        async with self._lock:
            yield self._send

    async def send(self, message: ServerMessage) -> None:
        """Wait until this task may send, and send one message."""
        async with self.turn() as send:
            await send(message)

    async def _send(self, message: ServerMessage) -> None:
        try:
            await self._socket.send(encode(message))
        except trio.BrokenResourceError:
            self._connection.cancel()
            await trio.sleep_forever()


class SendingTask:
    """A task that sends on a channel, and that can be stopped, but never within its turn.

    Cancelling it while a frame is sent would break the socket, and lose the frame.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel: Final = channel
        self._scope: Final = trio.CancelScope()
        self._has_turn = False
        self._is_stopped = False

    def stop(self) -> None:
        """End the task, once its turn is over if it has one. Idempotent."""
        self._is_stopped = True
        if not self._has_turn:
            self._scope.cancel()

    async def run(self, work: Callable[[], Awaitable[None]]) -> None:
        """Await `work`, which takes its turns with `turn`, until it ends or `stop` is called."""
        with self._scope:
            await work()

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[Send]:
        """Wait until this task may send, as `Channel.turn`."""
        async with self._channel.turn() as send:
            if self._is_stopped:
                # Stopped while the turn came: it is cancelled here, before its first message.
                await trio.lowlevel.checkpoint()
            self._has_turn = True
            try:
                yield send
            finally:
                self._has_turn = False
                if self._is_stopped:
                    self._scope.cancel()
