"""A front end of the person's for tests: asks a host on the socket that is not for agents.

It collects what it is told, by the token of the request that goes on, and checks nothing of it but
that it is JSON-RPC. `pause` has it read nothing more, as a front end that hangs does.
"""

import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import trio

from acpterm.host.host import Host
from acpterm.jsonrpc import RpcError
from tests.support.depth import DEADLINE_S

PREFIX = "_acpterm/"


class Person:
    """One end of a stream to a host. `request` waits for the answer, `start` does not."""

    def __init__(self, stream: trio.abc.Stream) -> None:
        self.stream = stream
        self.told: list[dict[str, Any]] = []
        """All notifications, in the order in which they came."""
        self.by_token: defaultdict[str | None, list[dict[str, Any]]] = defaultdict(list)
        """Those of each token; None has those without."""
        self.lines: list[bytes] = []
        """Every line, as it came."""
        self.closed = trio.Event()
        self._methods: dict[int, str] = {}
        self._answers: dict[int, dict[str, Any]] = {}
        self._waiting: dict[int, trio.Event] = {}
        self._next = 0
        self._tokens = 0
        self._news = trio.lowlevel.ParkingLot()
        self._reads = trio.Event()
        self._reads.set()
        self._receiving: trio.CancelScope | None = None

    async def read(self) -> None:
        """Take what the host sends until it closes the stream."""
        rest = b""
        try:
            while True:
                await self._reads.wait()
                data = None
                with trio.CancelScope() as self._receiving:
                    data = await self.stream.receive_some(1 << 16)
                if data is None:
                    continue
                if not data:
                    break
                *lines, rest = (rest + data).split(b"\n")
                for line in lines:
                    self._take(line)
            assert not rest, f"half a message at the end: {rest[:200]!r}"
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self.closed.set()
            self._news.unpark_all()
            for event in self._waiting.values():
                event.set()

    def pause(self) -> None:
        """Read nothing more until `resume`."""
        self._reads = trio.Event()
        if self._receiving is not None:
            self._receiving.cancel()

    def resume(self) -> None:
        """Read on."""
        self._reads.set()

    def _take(self, line: bytes) -> None:
        self.lines.append(line)
        message = json.loads(line)
        assert message["jsonrpc"] == "2.0"
        if "method" in message:
            assert "id" not in message, f"a request to a front end: {message!r}"
            self.told.append(message)
            self.by_token[token_of(message)].append(message)
        else:
            assert ("result" in message) != ("error" in message), message
            self._answers[message["id"]] = message
            self._waiting[message["id"]].set()
        self._news.unpark_all()

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        await self.stream.send_all(data)

    async def start(self, method: str, params: Any = None) -> int:
        """Ask, and give the id to wait for with `answer`.

        `_acpterm/` may be left out; where that is not meant, `initialize` or `/…` begins it.
        """
        self._next += 1
        id_ = self._next
        name = full(method)
        self._methods[id_], self._waiting[id_] = name, trio.Event()
        body = {"jsonrpc": "2.0", "id": id_, "method": name, "params": params or {}}
        await self.send(json.dumps(body).encode() + b"\n")
        return id_

    async def answer(self, id_: int, seconds: float = DEADLINE_S) -> Any:
        """Wait for the answer to a request: its result, or `RpcError`."""
        with trio.fail_after(seconds):
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

    async def leave(self) -> None:
        """End what goes on, and close the stream; `stream.aclose` alone is to hang up."""
        with trio.CancelScope(shield=True), trio.move_on_after(1):
            try:
                for id_ in self._waiting.keys() - self._answers.keys():
                    await self.cancel(id_)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass
            await self.stream.aclose()

    async def request(self, method: str, params: Any = None) -> Any:
        """Ask, and wait for the result."""
        return await self.answer(await self.start(method, params))

    async def notify(self, method: str, params: Any) -> None:
        """Say something that has no answer."""
        body = {"jsonrpc": "2.0", "method": method, "params": params}
        await self.send(json.dumps(body).encode() + b"\n")

    async def cancel(self, id_: int) -> None:
        """Have a request that goes on ended: it is still answered."""
        await self.notify("$/cancel_request", {"requestId": id_})

    # Requests that go on.

    def token(self) -> str:
        """Make a token that was not used yet."""
        self._tokens += 1
        return f"token-{self._tokens}"

    async def open(self, method: str, **params: Any) -> tuple[int, str]:
        """Begin a request that goes on: the id of its answer, and its token."""
        token = params.setdefault("token", self.token())
        return await self.start(method, params), token

    async def until(self, look: Callable[[], Any], seconds: float = DEADLINE_S) -> Any:
        """Look each time that something has come, until what is seen is true: that."""
        with trio.fail_after(seconds):
            while not (found := look()):
                assert not self.closed.is_set(), "the host closed the connection"
                await self._news.park()
        return found

    # The methods about one terminal, in short.

    async def about(self, method: str, terminal: str, **more: Any) -> Any:
        """Ask `_acpterm/terminal/METHOD` about a terminal."""
        return await self.request(f"terminal/{method}", {"terminalId": terminal, **more})

    async def list(self, **params: Any) -> Any:
        """`_acpterm/terminal/list`."""
        return (await self.request("terminal/list", params))["terminals"]


def full(method: str) -> str:
    """Give the name of a method, which may have been said without its prefix."""
    if method == "initialize" or method.startswith(("_", "$")):
        return method
    return method.removeprefix("/") if method.startswith("/") else PREFIX + method


def token_of(message: dict[str, Any]) -> str | None:
    """Give the token of a notification: of its own, or, in one of ACP's, in its `_meta`."""
    params = message.get("params") or {}
    own = (params.get("_meta") or {}).get("acpterm") or {}
    return params.get("token", own.get("token"))


@asynccontextmanager
async def talking(stream: trio.abc.Stream) -> AsyncIterator[Person]:
    """Talk to the host at the other end of `stream` for as long as the block lasts."""
    person = Person(stream)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(person.read)
        try:
            yield person
        finally:
            await person.leave()
            nursery.cancel_scope.cancel()


@asynccontextmanager
async def person_of(host: Host) -> AsyncIterator[Person]:
    """Connect a front end to a host in this process, over a socket pair."""
    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.serve_user, trio.SocketStream(theirs), host.context)
        async with talking(trio.SocketStream(ours)) as person:
            yield person


@asynccontextmanager
async def person_at(path: str) -> AsyncIterator[Person]:
    """Connect a front end to a daemon's socket: the person's, not the agents'."""
    async with talking(await trio.open_unix_socket(path)) as person:
        yield person
