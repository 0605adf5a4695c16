"""A conductor: it connects a client, proxies and an agent to a chain (ACP v1, unstable)."""

import itertools
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from acpterm.agents.proxy.run import ProxyOptions, run_proxy
from acpterm.config import Settings
from tests.support.editor import AGENT, Proxied
from tests.support.rpc import Message, MessageStream

ENVELOPE, CANCEL = "proxy/successor", "$/cancel_request"


class Conductor:
    """Routes messages between components: the client, the proxies and the agent, in this order.

    An id is unique only in the messages that one side has sent on one connection. So the conductor
    gives each request that it sends an id of its own, different for each component.
    """

    def __init__(self, *components: trio.abc.Stream) -> None:
        self.components = [MessageStream(stream) for stream in components]
        self.received: list[tuple[int, Message]] = []
        """All messages, each with the number of the component that has sent it."""
        self.sent: list[tuple[int, Message]] = []
        self._ids = [itertools.count(1000 * number) for number, _ in enumerate(components)]
        # By component and the id of a request sent to it: the sender, and the id that it has given.
        self._origins: dict[tuple[int, Any], tuple[int, Any]] = {}

    def to(self, component: int, method: str) -> list[Message]:
        """Return the messages with a method that were sent to a component."""
        return [m for number, m in self.sent if number == component and m.get("method") == method]

    async def run(self) -> None:
        """Route messages until all components have closed their streams."""
        async with trio.open_nursery() as nursery:
            for number in range(len(self.components)):
                nursery.start_soon(self._read, number)

    async def _read(self, number: int) -> None:
        try:
            while True:
                message = json.loads(await self.components[number].receive_line())
                self.received.append((number, message))
                await self._route(number, message)
        except (EOFError, trio.BrokenResourceError, trio.ClosedResourceError):
            pass

    async def _send(self, number: int, **message: Any) -> None:
        self.sent.append((number, message))
        await self.components[number].send_message(**message)

    async def _route(self, number: int, message: Message) -> None:
        if "method" not in message:
            origin, id_ = self._origins.pop((number, message["id"]))
            result = {name: message[name] for name in ("result", "error") if name in message}
            await self._send(origin, id=id_, **result)
            return
        method: str = message["method"]
        params: Any = message.get("params")
        if method == CANCEL:
            cancelled = (number, params["requestId"])
            found = [key for key, origin in self._origins.items() if origin == cancelled]
            for target, id_ in found:
                await self._send(target, method=CANCEL, params={"requestId": id_})
            return
        last = len(self.components) - 1
        is_down = number == 0
        if 0 < number < last and method == ENVELOPE:
            assert params.keys() <= {"method", "params", "_meta"}, message
            assert isinstance(params["method"], str), message
            assert params["method"] != CANCEL, "cancellation is never forwarded"
            assert isinstance(params.get("params", {}), dict | list), message
            is_down, method, params = True, params["method"], params.get("params")
        target = number + 1 if is_down else number - 1
        if is_down and method == "initialize" and target < last:
            method = "proxy/initialize"
        if not is_down and target > 0:
            inner = {} if params is None else {"params": params}
            method, params = ENVELOPE, {"method": method, **inner, "_meta": {"hop": "local"}}
        fields: dict[str, Any] = {"method": method}
        if params is not None:
            fields["params"] = params
        if "id" in message:
            fields["id"] = next(self._ids[target])
            self._origins[target, fields["id"]] = number, message["id"]
        await self._send(target, **fields)


async def proxy_in_chain(stream: trio.abc.Stream, **options: Any) -> int:
    """Run a proxy without an agent's command in this process, with a conductor at the other end."""
    settings = Settings(kill_grace=0.2, **options.pop("settings", {}))
    return await run_proxy(stream, settings, ProxyOptions([], **{"embedded": True, **options}))


@asynccontextmanager
async def chained(*proxies: dict[str, Any]) -> AsyncIterator[tuple[Proxied, Conductor]]:
    """Run a chain of proxies with these options, and the scripted agent; yield the client."""
    ends = [trio.socket.socketpair() for _ in range(len(proxies) + 1)]
    streams = [(trio.SocketStream(ours), trio.SocketStream(theirs)) for ours, theirs in ends]
    client = Proxied(streams[0][1])
    process = await trio.lowlevel.open_process(AGENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdin is not None
    assert process.stdout is not None
    agent = trio.StapledStream(process.stdin, process.stdout)
    conductor = Conductor(*(ours for ours, _ in streams), agent)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(conductor.run)
        nursery.start_soon(client.listen)
        for options, (_, theirs) in zip(proxies, streams[1:], strict=True):
            run = lambda stream=theirs, options=options: proxy_in_chain(stream, **options)  # noqa: E731
            nursery.start_soon(run)
        try:
            yield client, conductor
        finally:
            with trio.CancelScope(shield=True), trio.move_on_after(15):
                await agent.aclose()
                await process.wait()
                for stream in (client.stream, *(ours for ours, _ in streams)):
                    await stream.aclose()
