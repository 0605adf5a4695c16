"""JSON-RPC over a trio stream: `MessageStream` receives on demand, `RpcClient` in a task."""

import json
import math
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import trio
from msgspec import UNSET

from acpterm.jsonrpc import RpcError
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll

Message = dict[str, Any]


def encode(**members: Any) -> bytes:
    """Encode a message as a line."""
    return json.dumps({"jsonrpc": "2.0", **members}).encode() + b"\n"


class MessageStream:
    """One end of a stream of messages, from which the test receives one after the other."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self._lines: deque[bytes] = deque()
        self._rest = b""

    async def receive_line(self) -> bytes:
        """Receive the next line, without its newline; raise EOFError at the end of the stream."""
        while not self._lines:
            data = await self.stream.receive_some(1 << 20)
            if not data:
                raise EOFError(f"the peer has closed the stream after {self._rest[:200]!r}")
            *lines, self._rest = (self._rest + data).split(b"\n")
            self._lines.extend(lines)
        return self._lines.popleft()

    async def receive(self) -> Message:
        """Receive the next message."""
        with trio.fail_after(DEADLINE_S):
            message: Message = json.loads(await self.receive_line())
        return message

    async def receive_rest(self) -> bytes:
        """Receive until the peer closes the stream; return what was not yet received."""
        received = bytearray(b"\n".join([*self._lines, self._rest]))
        self._lines.clear()
        self._rest = b""
        with trio.fail_after(DEADLINE_S):
            while data := await self.stream.receive_some(1 << 20):
                received += data
        return bytes(received)

    async def send(self, data: bytes) -> None:
        """Send bytes unchanged."""
        await self.stream.send_all(data)

    async def send_message(self, **members: Any) -> None:
        """Send a message."""
        await self.send(encode(**members))

    async def notify(self, method: str, params: Any) -> None:
        """Send a notification."""
        await self.send_message(method=method, params=params)

    async def respond(self, request: Message, result: Any = None) -> None:
        """Send the result of a request, by default an empty object."""
        await self.send_message(id=request["id"], result={} if result is None else result)

    async def respond_error(self, request: Message, message: str, code: int = -32603) -> None:
        """Send the error response to a request."""
        await self.send_message(id=request["id"], error={"code": code, "message": message})


class RpcClient(MessageStream):
    """A client that matches responses to its requests; `listen` receives all messages."""

    timeout_s = math.inf
    """How many seconds `result` waits for a response."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        super().__init__(stream)
        self.messages: list[Message] = []
        """The messages received so far."""
        self.methods: dict[Any, str] = {}
        """The method of each request sent, by id."""
        self.responses: dict[Any, Message] = {}
        """The last response to each id."""
        self.closed = trio.Event()
        """Set once the stream has ended."""
        self._pending: dict[Any, trio.Event] = {}
        self._last_id = 0
        self._may_receive = trio.Event()
        self._may_receive.set()
        self._receiving = trio.CancelScope()

    async def listen(self) -> None:
        """Receive messages until the stream ends."""
        try:
            while True:
                await self._may_receive.wait()
                line = None
                with trio.CancelScope() as self._receiving:
                    line = await self.receive_line()
                if line is not None:
                    await self._receive_line(line)
        except EOFError:
            assert not self._rest, f"half a message at the end: {self._rest[:200]!r}"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.closed.set()
            for event in self._pending.values():
                event.set()

    def pause(self) -> None:
        """Stop receiving until `resume`, like a client that hangs."""
        self._may_receive = trio.Event()
        self._receiving.cancel()

    def resume(self) -> None:
        """Continue receiving."""
        self._may_receive.set()

    async def _receive_line(self, line: bytes) -> None:
        await self._receive_message(json.loads(line))

    async def _receive_message(self, message: Message) -> None:
        self.messages.append(message)
        if "method" not in message:
            self.responses[message.get("id")] = message
            if message.get("id") in self._pending:
                self._pending[message["id"]].set()

    def prepare(self, method: str, params: Any, id_: Any = UNSET) -> tuple[Any, bytes]:
        """Return id and line of a request that the test sends itself; by default with a new id."""
        if id_ is UNSET:
            id_ = self._last_id + 1
        if isinstance(id_, int):
            self._last_id = max(self._last_id, id_)
        self.expect_response(id_, method)
        return id_, encode(id=id_, method=method, params=params)

    def expect_response(self, id_: Any, method: str) -> None:
        """Make `result` wait for a new response to this id, even if one was received already."""
        self.methods[id_] = method
        self.responses.pop(id_, None)
        self._pending[id_] = trio.Event()

    async def start(self, method: str, params: Any, id_: Any = UNSET) -> Any:
        """Send a request; return its id for `result`."""
        id_, line = self.prepare(method, params, id_)
        await self.send(line)
        return id_

    async def result(self, id_: Any) -> Any:
        """Wait for the response to a request; return its result, or raise its `RpcError`."""
        with trio.fail_after(self.timeout_s):
            await self._pending[id_].wait()
        message = self.responses.get(id_)
        if message is None:
            raise EOFError(f"no response to {self.methods[id_]}: the stream has ended")
        if "error" in message:
            raise RpcError(message["error"]["code"], message["error"]["message"])
        return message["result"]

    def has_response(self, id_: Any) -> bool:
        """Return whether the response to a request was received."""
        return id_ in self.responses

    async def request(self, method: str, params: Any) -> Any:
        """Send a request and wait for its result."""
        return await self.result(await self.start(method, params))

    async def cancel(self, id_: Any) -> None:
        """Send `$/cancel_request` for a request, which still gets a response."""
        await self.notify("$/cancel_request", {"requestId": id_})

    async def until(self, check: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
        """Poll until `check` returns a true value; return that value."""
        return await poll(lambda: check() or None, timeout_s)

    async def close(self) -> None:
        """Close the stream."""
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            await self.stream.aclose()


Client = TypeVar("Client", bound=RpcClient)


@asynccontextmanager
async def running(client: Client) -> AsyncIterator[Client]:
    """Receive messages in the background; close the stream at the end of the block."""
    async with trio.open_nursery() as nursery:
        nursery.start_soon(client.listen)
        try:
            yield client
        finally:
            await client.close()
            nursery.cancel_scope.cancel()
