"""A fake daemon for tests on trio or asyncio, which send the daemon's messages themselves."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
from anyio.abc import UNIXSocketStream
from anyio.streams.buffered import BufferedByteReceiveStream

from acpterm.config import Settings
from tests.support.depth import DEADLINE_S
from tests.support.rpc import Message, encode

SECRET = "5ec7e7"
INFO: dict[str, Any] = {
    **dict.fromkeys(("name", "agent", "connection", "sessionId", "pid", "lastOutputAt")),
    **dict.fromkeys(("exitedAt", "waitingForInput", "recording", "exitStatus")),
    **dict.fromkeys(("createdAt", "position", "attached"), 0),
    "terminalId": "term_1",
    "state": "running",
    "owner": "agent",
    "toolCalls": [],
    "command": "cat",
    "cwd": "/",
    "cols": 80,
    "rows": 24,
}


class Worker:
    """The daemon's end of one connection."""

    def __init__(self, stream: UNIXSocketStream) -> None:
        self._stream = stream
        self._received = BufferedByteReceiveStream(stream)

    async def receive(self) -> Message:
        """Receive the next message."""
        with anyio.fail_after(DEADLINE_S):
            message: Message = json.loads(await self._received.receive_until(b"\n", 1 << 24))
        return message

    async def expect(self, method: str) -> Message:
        """Receive the next message, which must be of `method`."""
        message = await self.receive()
        assert message.get("method") == method, message
        return message

    async def welcome(self, **own: Any) -> Message:
        """Receive `initialize` and respond to it; return the request's ``_meta.acpterm``.

        `own` are further members of the response's ``_meta.acpterm``.
        """
        message = await self.expect("initialize")
        meta = {"acpterm": {"resume": SECRET, **own}}
        await self.respond(message, {"protocolVersion": 1, "_meta": meta})
        presented: Message = message["params"]["_meta"]["acpterm"]
        return presented

    async def respond(self, request: Message, result: Any) -> None:
        await self._stream.send(encode(id=request["id"], result=result))

    async def fail(self, request: Message, message: str, code: int = -32603) -> None:
        await self._stream.send(encode(id=request["id"], error={"code": code, "message": message}))

    async def notify(self, method: str, params: Any) -> None:
        await self._stream.send(encode(method=method, params=params))

    async def send(self, data: bytes) -> None:
        await self._stream.send(data)

    async def lose(self) -> None:
        """Close the connection, as when the worker dies."""
        await anyio.aclose_forcefully(self._stream)


class FakeDaemon:
    """A listening socket at `path`, and the settings of its clients."""

    def __init__(self, path: Path, listener: Any) -> None:
        self.path = path
        self.settings = Settings(socket=str(path.with_name("agent.sock")))
        self._listener = listener
        self._workers: list[Worker] = []

    async def accept(self) -> Worker:
        """Accept the next connection."""
        with anyio.fail_after(DEADLINE_S):
            stream = await self._listener.accept()
        self._workers.append(Worker(stream))
        return self._workers[-1]

    async def stop(self) -> None:
        """End, as a keeper does: close the listening socket, and remove it."""
        await self._listener.aclose()
        self.path.unlink(missing_ok=True)

    async def close(self) -> None:
        await self.stop()
        for worker in self._workers:
            await worker.lose()


@asynccontextmanager
async def fake_daemon(tmp_path: Path, role: str) -> AsyncIterator[FakeDaemon]:
    """Listen at the socket for `role` until the end of the block."""
    directory = tmp_path / "run"
    directory.mkdir(mode=0o700)
    path = directory / ("agent.sock" if role == "agent" else "user.sock")
    multi = await anyio.create_unix_listener(path)
    daemon = FakeDaemon(path, getattr(multi, "listeners", [multi])[0])
    try:
        yield daemon
    finally:
        with anyio.CancelScope(shield=True):
            await daemon.close()
