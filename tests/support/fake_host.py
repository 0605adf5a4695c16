"""A fake daemon, whose messages the test sends: a listening socket and its connections.

The listening socket plays the keeper: it stays open while connections, each playing another worker,
are lost. Every wait for the client has a deadline.
"""

import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.support.depth import DEADLINE_S
from tests.support.rpc import Message, MessageStream

SECRET = "5ec7e7"


class Connection(MessageStream):
    """The daemon's end of one connection."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.initialize: dict[str, Any] = {}

    async def expect(self, method: str) -> Message:
        """Receive the next message, which must be of `method`."""
        message = await self.receive()
        assert message.get("method") == method, message
        return message

    async def welcome(self, *, secret: str | None = SECRET, resumed: bool | None = None) -> None:
        """Receive `initialize` and respond to it."""
        message = await self.expect("initialize")
        self.initialize = message["params"]
        own: dict[str, Any] = {}
        if secret is not None:
            own["resume"] = secret
        if resumed is not None:
            own["resumed"] = resumed
        await self.respond(message, {"protocolVersion": 1, "_meta": {"acpterm": own}})

    @property
    def presented(self) -> str | None:
        """The secret in the client's `initialize`."""
        secret: str | None = self.initialize["_meta"]["acpterm"].get("resume")
        return secret

    async def lose(self) -> None:
        """Close the connection, as when the worker dies."""
        await trio.aclose_forcefully(self.stream)


class FakeHost:
    """A listening socket at `path`."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._listener: trio.SocketListener | None = None
        self._connections: list[Connection] = []

    def listen(self) -> None:
        sock = socket.socket(socket.AF_UNIX)
        sock.bind(self.path)
        sock.listen()
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(sock))

    def lock(self, text: str) -> None:
        """Write `text` to the lock file beside the agents' socket."""
        agents = Path(self.path).with_name("agent.sock.lock")
        agents.write_text(text)

    async def accept(self) -> Connection:
        """Accept a connection, without receiving anything from it."""
        assert self._listener is not None
        with trio.fail_after(DEADLINE_S):
            connection = Connection(await self._listener.accept())
        self._connections.append(connection)
        return connection

    async def connected(self, **options: Any) -> Connection:
        """Accept a connection and respond to its `initialize`."""
        connection = await self.accept()
        await connection.welcome(**options)
        return connection

    async def resumed(self) -> Connection:
        """Accept a connection whose `initialize` presents the secret, and resume it."""
        connection = await self.connected(resumed=True)
        assert connection.presented == SECRET
        assert "context" not in connection.initialize["_meta"]["acpterm"]
        return connection

    async def stop(self) -> None:
        """Stop listening and remove the socket, as a keeper does at its end."""
        if self._listener is not None:
            await self._listener.aclose()
            self._listener = None
            os.unlink(self.path)

    async def close(self) -> None:
        await self.stop()
        for connection in self._connections:
            await connection.lose()


@asynccontextmanager
async def fake_host(tmp_path: Path, name: str = "agent.sock") -> AsyncIterator[FakeHost]:
    """Listen at a socket in a new directory until the end of the block."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700, exist_ok=True)
    host = FakeHost(str(directory / name))
    host.listen()
    try:
        yield host
    finally:
        with trio.CancelScope(shield=True):
            await host.close()
