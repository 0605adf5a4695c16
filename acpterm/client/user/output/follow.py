"""The complete live output of one of the user's own terminals, for commands that run in a pipe.

The program waits while its output is not read (`hold`), so nothing is lost. After a lost
connection, output is followed on a new one from the position that was reached, so nothing is
repeated. For readers that the program does not wait for, see `read`.
"""

import base64
import math
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import msgspec
import trio
from msgspec import Raw

from acpterm.acp.user_streams import FollowedNotification, FollowRequest, FollowResponse
from acpterm.client.errors import LostError
from acpterm.client.user.client import UserClient

# Received parts that may wait to be read; above that, no more are received.
_WAITING_MAX: Final = 4

_notifications: Final = msgspec.json.Decoder(FollowedNotification)


class Part(NamedTuple):
    """The next bytes of a stream."""

    data: bytes
    position: int
    """The position in the stream after them."""
    lost: int
    """Number of bytes lost before them: 0, unless the daemon's worker was replaced."""


class OutputStream:
    """The parts of one stream, to be iterated over once."""

    def __init__(self, client: UserClient, token: str) -> None:
        self._token: Final = token
        self._send, self._receive = trio.open_memory_channel[Part](math.inf)
        self._has_room = trio.Event()
        self._is_abandoned = False
        self._position = 0
        self.end: FollowResponse | None = None
        """The final response, once all parts were received."""
        client.on_notification = self._take
        client.throttle = self._throttle

    def __aiter__(self) -> "OutputStream":
        return self

    async def __anext__(self) -> Part:
        """Wait for the next part."""
        self._has_room.set()
        try:
            return await self._receive.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None

    async def run(self, client: UserClient, terminal: str) -> None:
        """Receive output until the program has ended. Raises `RpcError`, `DaemonError`."""
        with self._send:
            while self.end is None:
                endpoint = client.endpoint
                params = FollowRequest(terminal, self._token, self._position, hold=True)
                try:
                    self.end = await client.call("terminal/follow", params, FollowResponse)
                except LostError:
                    await client.reconnect(endpoint)

    def abandon(self) -> None:
        """Stop throttling the connection: no more parts will be read."""
        self._is_abandoned = True
        self._has_room.set()

    def _take(self, method: str, params: Raw) -> None:
        if method != "_acpterm/terminal/followed":
            return
        part = _notifications.decode(params)
        if part.token == self._token:
            self._position = part.position
            # Output that arrives after the reader has stopped is dropped.
            with suppress(trio.ClosedResourceError):
                self._send.send_nowait(Part(base64.b64decode(part.data), part.position, part.lost))

    async def _throttle(self) -> None:
        await trio.lowlevel.checkpoint()
        while (
            not self._is_abandoned and self._receive.statistics().current_buffer_used > _WAITING_MAX
        ):
            self._has_room = trio.Event()
            await self._has_room.wait()


@asynccontextmanager
async def follow_output(client: UserClient, terminal: str) -> AsyncIterator[OutputStream]:
    """Follow a terminal's output from its beginning for the duration of the block.

    The program waits for the reader. Raises an exception group with an `RpcError` or `DaemonError`.
    """
    parts = OutputStream(client, client.token())
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parts.run, client, terminal)
        try:
            yield parts
        finally:
            parts.abandon()
        nursery.cancel_scope.cancel()
