"""A daemon for tests that does what the test says: a listening socket, and its connections.

The listening socket is the keeper's: it stays while connections, each to another worker, are lost.
Every wait has a deadline.
"""

import json
import os
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

DEADLINE_S = 10
SECRET = "5ec7e7"


class Connection:
    """The daemon's end of one connection."""

    def __init__(self, stream: trio.SocketStream) -> None:
        self.stream = stream
        self._rest = b""
        self.initialize: dict[str, Any] = {}

    async def next(self) -> dict[str, Any]:
        """Receive the next message."""
        with trio.fail_after(DEADLINE_S):
            while b"\n" not in self._rest:
                data = await self.stream.receive_some(1 << 16)
                if not data:
                    raise EOFError(f"the client has closed the connection after {self._rest!r}")
                self._rest += data
        line, _, self._rest = self._rest.partition(b"\n")
        message: dict[str, Any] = json.loads(line)
        return message

    async def expect(self, method: str) -> dict[str, Any]:
        """Receive the next message, which has to be of `method`."""
        message = await self.next()
        assert message.get("method") == method, message
        return message

    async def send(self, data: bytes) -> None:
        with trio.fail_after(DEADLINE_S):
            await self.stream.send_all(data)

    async def say(self, message: dict[str, Any]) -> None:
        await self.send(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")

    async def answer(self, request: dict[str, Any], result: Any = None) -> None:
        await self.say({"id": request["id"], "result": {} if result is None else result})

    async def fail(self, request: dict[str, Any], message: str, code: int = -32603) -> None:
        await self.say({"id": request["id"], "error": {"code": code, "message": message}})

    async def notify(self, method: str, params: Any) -> None:
        await self.say({"method": method, "params": params})

    async def welcome(self, *, secret: str | None = SECRET, resumed: bool | None = None) -> None:
        """Receive `initialize`, and answer it."""
        message = await self.expect("initialize")
        self.initialize = message["params"]
        own: dict[str, Any] = {}
        if secret is not None:
            own["resume"] = secret
        if resumed is not None:
            own["resumed"] = resumed
        await self.answer(message, {"protocolVersion": 1, "_meta": {"acpterm": own}})

    @property
    def presented(self) -> str | None:
        """The secret that `initialize` presented."""
        secret: str | None = self.initialize["_meta"]["acpterm"].get("resume")
        return secret

    async def lose(self) -> None:
        """Close the connection, as when the worker dies."""
        await trio.aclose_forcefully(self.stream)

    async def ended(self) -> bytes:
        """Receive to the end of what the client sends."""
        with trio.fail_after(DEADLINE_S):
            while data := await self.stream.receive_some(1 << 16):
                self._rest += data
        return self._rest


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
        """Write the lock file, which is beside the agents' socket."""
        agents = Path(self.path).with_name("agent.sock.lock")
        agents.write_text(text)

    async def accept(self) -> Connection:
        """Accept a connection; nothing is received from it yet."""
        assert self._listener is not None
        with trio.fail_after(DEADLINE_S):
            connection = Connection(await self._listener.accept())
        self._connections.append(connection)
        return connection

    async def connected(self, **answer: Any) -> Connection:
        """Accept a connection, and answer its `initialize`."""
        connection = await self.accept()
        await connection.welcome(**answer)
        return connection

    async def resumed(self) -> Connection:
        """Accept a connection that presents the secret, and resume it."""
        connection = await self.connected(resumed=True)
        assert connection.presented == SECRET
        assert "context" not in connection.initialize["_meta"]["acpterm"]
        return connection

    async def stop(self) -> None:
        """Stop listening and remove the socket, as a keeper that ends does."""
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
    """Listen at a socket in a directory of its own for as long as the block lasts."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700, exist_ok=True)
    host = FakeHost(str(directory / name))
    host.listen()
    try:
        yield host
    finally:
        with trio.CancelScope(shield=True):
            await host.close()
