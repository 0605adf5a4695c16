"""A terminal's bytes, followed as they come: what the daemon tells, as parts to go through.

They are read as fast as whoever goes through them does so. The daemon waits for nobody: of what was
not read in time it tells how much is missing. When the connection is lost, the terminal is followed
again on another one, from the position that was reached: nothing comes twice.
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
from acpterm.client.endpoint import LostError
from acpterm.client.user.client import UserClient

# Parts that wait to be gone through before no more are read.
_WAITING: Final = 4

_told: Final = msgspec.json.Decoder(FollowedNotification)


class Part(NamedTuple):
    """The next bytes of a stream."""

    data: bytes
    position: int
    """Behind them."""
    lost: int
    """How many bytes before them are gone; where none was asked for by position, none are."""


class OutputStream:
    """The parts of one stream, to be gone through once."""

    def __init__(self, client: UserClient, token: str) -> None:
        self._token: Final = token
        self._put, self._parts = trio.open_memory_channel[tuple[Part, int | None]](math.inf)
        self._took = trio.Event()
        self._begun = False
        self._position: int | None = None
        self.at: int | None = None
        """When the part that was given last came, in milliseconds since 1970, if asked for."""
        self.end: FollowResponse | None = None
        """How it ended, when all parts were given."""
        client.on_notification = self._take
        client.throttle = self._pace

    def __aiter__(self) -> "OutputStream":
        return self

    async def __anext__(self) -> Part:
        """Wait for the next part."""
        # Until then nothing is held up: an answer that is waited for may come behind parts.
        self._begun = True
        self._took.set()
        try:
            part, self.at = await self._parts.receive()
        except trio.EndOfChannel:
            raise StopAsyncIteration from None
        return part

    async def run(self, client: UserClient, params: FollowRequest) -> None:
        """Ask for it, and wait for its end. Raises `RpcError`, `DaemonError`."""
        with self._put:
            while self.end is None:
                endpoint = client.endpoint
                try:
                    self.end = await client.call("terminal/follow", params, FollowResponse)
                except LostError:
                    await client.reconnect(endpoint)
                    if self._position is not None:
                        params.since, params.since_time = self._position, None

    def leave(self) -> None:
        """Hold up nothing any more: nobody goes through the parts."""
        self._begun = False
        self._took.set()

    def _take(self, method: str, params: Raw) -> None:
        if method != "_acpterm/terminal/followed":
            return
        told = _told.decode(params)
        if told.token == self._token:
            self._position = told.position
            part = Part(base64.b64decode(told.data), told.position, told.lost)
            # What was on its way when this was left is nobody's.
            with suppress(trio.ClosedResourceError):
                self._put.send_nowait((part, told.at))

    async def _pace(self) -> None:
        await trio.lowlevel.checkpoint()
        while self._begun and self._parts.statistics().current_buffer_used > _WAITING:
            self._took = trio.Event()
            await self._took.wait()


@asynccontextmanager
async def follow_output(
    client: UserClient,
    terminal: str,
    *,
    since: int | None = None,
    since_time: int | None = None,
    times: bool = False,
    stay: bool = True,
    hold: bool = False,
) -> AsyncIterator[OutputStream]:
    """Follow a terminal for as long as the block lasts: from `since`, or from the oldest byte.

    `since_time`: from what came then or later, in milliseconds since 1970. With `times` parts say
    when they came.

    Unless it is to `stay`, it ends with what there is now. With `hold` the program waits for who
    goes through it, and nothing is missing. Raises `RpcError`, in a group.
    """
    token = client.token()
    parts = OutputStream(client, token)
    params = FollowRequest(
        terminal, token, since, since_time=since_time, times=times, stay=stay, hold=hold
    )
    async with trio.open_nursery() as nursery:
        nursery.start_soon(parts.run, client, params)
        try:
            yield parts
        finally:
            parts.leave()
        nursery.cancel_scope.cancel()
