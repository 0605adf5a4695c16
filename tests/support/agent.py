"""An agent for tests: asks a host, and checks every message that comes back against the schema."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from acpterm.jsonrpc import RpcError
from tests.acp.validate import validate_sent
from tests.support.depth import DEADLINE_S


class Agent:
    """One end of a stream to a host. `request` waits for the answer, `start` does not."""

    def __init__(self, stream: trio.abc.Stream, session: str = "session-1") -> None:
        self.stream = stream
        self.session = session
        self.received: list[dict[str, Any]] = []
        self.closed = trio.Event()
        self._methods: dict[Any, str] = {}
        self._answers: dict[Any, dict[str, Any]] = {}
        self._waiting: dict[Any, trio.Event] = {}
        self._next = 0

    async def read(self) -> None:
        """Take what the host sends until it closes the stream."""
        rest = b""
        try:
            while data := await self.stream.receive_some(1 << 20):
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(json.loads(line))
            assert not rest, f"half a message at the end: {rest[:200]!r}"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.closed.set()
            for event in self._waiting.values():
                event.set()

    def _take(self, message: dict[str, Any]) -> None:
        self.received.append(message)
        validate_sent(message, self._methods)
        self._answers[message["id"]] = message
        if message["id"] in self._waiting:
            self._waiting[message["id"]].set()

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send_all(data)

    def message(self, method: str, params: Any) -> tuple[int, bytes]:
        """Make a request to be sent by `send`."""
        self._next += 1
        id_ = self._next
        self._methods[id_] = method
        self._waiting[id_] = trio.Event()
        body = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
        return id_, json.dumps(body).encode() + b"\n"

    async def start(self, method: str, params: Any) -> int:
        """Ask, and give the id to wait for with `answer`."""
        id_, line = self.message(method, params)
        await self.send(line)
        return id_

    async def answer(self, id_: int) -> Any:
        """Wait for the answer to a request: its result, or `RpcError`."""
        await self._waiting[id_].wait()
        message = self._answers.get(id_)
        if message is None:
            raise EOFError(f"no answer to {self._methods[id_]}: the host closed the connection")
        if "error" in message:
            raise RpcError(message["error"]["code"], message["error"]["message"])
        return message["result"]

    def answered(self, id_: int) -> bool:
        """Whether an answer has come."""
        return id_ in self._answers

    async def request(self, method: str, params: Any) -> Any:
        """Ask, and wait for the result."""
        return await self.answer(await self.start(method, params))

    async def notify(self, method: str, params: Any) -> None:
        """Say something that has no answer."""
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        await self.send(json.dumps(body).encode() + b"\n")

    # The methods of terminals, in short.

    async def create(self, command: str, *, own: dict[str, Any] | None = None, **more: Any) -> str:
        """`terminal/create`; `own` is `_meta.acpterm`."""
        params = {"sessionId": self.session, "command": command, **more}
        if own is not None:
            params["_meta"] = {"acpterm": own}
        result = await self.request("terminal/create", params)
        return str(result["terminalId"])

    def of(self, terminal: str, **more: Any) -> dict[str, Any]:
        """Make the params that name a terminal."""
        return {"sessionId": self.session, "terminalId": terminal, **more}

    async def output(self, terminal: str) -> Any:
        return await self.request("terminal/output", self.of(terminal))

    async def wait(self, terminal: str) -> Any:
        return await self.request("terminal/wait_for_exit", self.of(terminal))

    async def kill(self, terminal: str) -> Any:
        return await self.request("terminal/kill", self.of(terminal))

    async def release(self, terminal: str) -> Any:
        return await self.request("terminal/release", self.of(terminal))

    async def read_from(self, terminal: str, **more: Any) -> Any:
        return await self.request("_acpterm/terminal/read", self.of(terminal, **more))

    async def type(self, terminal: str, data: str) -> Any:
        return await self.request("_acpterm/terminal/write", self.of(terminal, data=data))

    async def run(self, command: str, **more: Any) -> tuple[str, dict[str, Any]]:
        """Run a command to its end and release it: its output and its exit status."""
        terminal = await self.create(command, **more)
        status = await self.wait(terminal)
        output = await self.output(terminal)
        assert output["exitStatus"] == status
        await self.release(terminal)
        return output["output"], status

    async def until_output(self, terminal: str, text: str, seconds: float = DEADLINE_S) -> str:
        """Poll until the output holds `text`: the output."""
        with trio.fail_after(seconds):
            while text not in (found := str((await self.output(terminal))["output"])):
                await trio.sleep(0.005)
        return found


@asynccontextmanager
async def connected(stream: trio.abc.Stream, session: str = "session-1") -> AsyncIterator[Agent]:
    """Talk to the host at the other end of `stream` for as long as the block lasts."""
    agent = Agent(stream, session)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(agent.read)
        try:
            yield agent
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(1):
                await stream.aclose()
            nursery.cancel_scope.cancel()
