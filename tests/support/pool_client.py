"""A client of the WebSocket of a PTY pool, without a network."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from acpterm.host.host import Host
from acpterm.web.pool_socket import serve_pool
from tests.support.depth import DEADLINE_S

Message = dict[str, Any]


class MemorySocket:
    """The server's end of a socket. A frame is sent once the client has read the previous one."""

    def __init__(self) -> None:
        self._to_server, self._received = trio.open_memory_channel[str | bytes | None](0)
        self._sent, self._to_client = trio.open_memory_channel[str](0)
        self.is_broken = False
        self.largest = 0
        """The length of the longest frame that was sent."""

    async def receive(self) -> str | bytes | None:
        return await self._received.receive()

    async def send(self, text: str) -> None:
        if self.is_broken:
            raise trio.BrokenResourceError
        self.largest = max(self.largest, len(text))
        await self._sent.send(text)

    async def put(self, frame: str | bytes | None) -> None:
        """Send a frame to the server; None closes the socket."""
        await self._to_server.send(frame)

    async def get(self) -> str:
        """Return the next frame from the server."""
        return await self._to_client.receive()


class PoolClient:
    """The client's end. It reads only while one of its methods waits for a message."""

    def __init__(self, socket: MemorySocket) -> None:
        self.socket = socket
        self.skipped: list[Message] = []
        """The messages that `until` has passed over."""

    async def send(self, kind: str, identifier: str, **members: Any) -> None:
        await self.socket.put(json.dumps({"type": kind, "id": identifier, **members}))

    async def next(self) -> Message:
        """Return the next message."""
        with trio.fail_after(DEADLINE_S):
            message: Message = json.loads(await self.socket.get())
        return message

    async def until(self, is_wanted: Callable[[Message], Any]) -> Message:
        """Read until `is_wanted` returns true for a message; return the message."""
        while not is_wanted(message := await self.next()):
            self.skipped.append(message)
        return message

    async def until_type(self, kind: str) -> Message:
        """Read until a message of this type; return it."""
        return await self.until(lambda message: message["type"] == kind)

    async def until_event(self, event: str) -> Message:
        """Read until an event of this name; return it."""
        return await self.until(lambda message: message.get("event") == event)

    async def until_data(self, text: str) -> str:
        """Read `pty:output` messages until their joined data contains `text`; return the data."""
        found = ""
        while text not in found:
            found += str((await self.until_type("pty:output"))["data"])
        return found

    async def attach(self, identifier: str) -> str:
        """Attach to a terminal; return its history."""
        await self.send("pty:attach", identifier)
        attached = await self.until_type("pty:attached")
        assert attached["id"] == identifier
        return str(attached["history"])


@asynccontextmanager
async def pool_client(host: Host) -> AsyncIterator[PoolClient]:
    """Connect a client to a host in this process."""
    socket = MemorySocket()
    async with trio.open_nursery() as nursery:
        with host.local_user() as user:
            nursery.start_soon(serve_pool, socket, user)
            yield PoolClient(socket)
            nursery.cancel_scope.cancel()
