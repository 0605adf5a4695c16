"""The agent of the tests, which validates every message of the host against ACP's schema."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from acpterm.host.host import Host
from tests.acp.validate import validate_sent
from tests.support.connector import connect_as_agent
from tests.support.depth import DEADLINE_S
from tests.support.rpc import Message, RpcClient, running


class Agent(RpcClient):
    """An agent's connection to a host, with the methods of terminals."""

    def __init__(self, stream: trio.abc.Stream, session: str = "session-1") -> None:
        super().__init__(stream)
        self.session = session

    async def _receive_message(self, message: Message) -> None:
        validate_sent(message, self.methods)
        await super()._receive_message(message)

    async def create(self, command: str, *, own: dict[str, Any] | None = None, **more: Any) -> str:
        """Request `terminal/create`; `own` is `_meta.acpterm`. Return the terminal's id."""
        params = {"sessionId": self.session, "command": command, **more}
        if own is not None:
            params["_meta"] = {"acpterm": own}
        result = await self.request("terminal/create", params)
        return str(result["terminalId"])

    async def create_ended(self, command: str, **more: Any) -> str:
        """Create a terminal, and wait until its command has ended."""
        terminal = await self.create(command, **more)
        await self.wait(terminal)
        return terminal

    async def create_until(self, text: str, command: str, **more: Any) -> str:
        """Create a terminal, and wait until its output contains `text`."""
        terminal = await self.create(command, **more)
        await self.until_output(terminal, text)
        return terminal

    def of(self, terminal: str, **more: Any) -> dict[str, Any]:
        """Return the params that name a terminal."""
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
        """Run a command to its end and release it; return its output and its exit status."""
        terminal = await self.create(command, **more)
        status = await self.wait(terminal)
        output = await self.output(terminal)
        assert output["exitStatus"] == status, (output, status)
        await self.release(terminal)
        return output["output"], status

    async def until_output(
        self, terminal: str, text: str, timeout_s: float = DEADLINE_S, *, count: int = 1
    ) -> str:
        """Poll until the output contains `text` at least `count` times; return the output."""
        with trio.fail_after(timeout_s):
            while (output := str((await self.output(terminal))["output"])).count(text) < count:
                await trio.sleep(0.005)
        return output

    async def initialize(self, secret: str | None = None) -> Any:
        """Send `initialize`; return `_meta.acpterm` of the result.

        `secret` resumes the lost connection that it belongs to.
        """
        params: dict[str, Any] = {
            "protocolVersion": 1,
            "clientInfo": {"name": "tester", "version": "1"},
        }
        if secret is not None:
            params["_meta"] = {"acpterm": {"resume": secret}}
        return (await self.request("initialize", params))["_meta"]["acpterm"]

    async def repeat(self, id_: Any, method: str, params: dict[str, Any]) -> Any:
        """Send a request with the id `id_`, which was used before; return its result."""
        return await self.result(await self.start(method, params, id_))


@asynccontextmanager
async def agent_on(stream: trio.abc.Stream, session: str = "session-1") -> AsyncIterator[Agent]:
    """Connect an agent to the host at the other end of `stream`."""
    async with running(Agent(stream, session)) as agent:
        yield agent


@asynccontextmanager
async def agent_of(host: Host, session: str = "session-1") -> AsyncIterator[Agent]:
    """Connect an agent to a host in this process, over a socket pair."""
    ours, theirs = trio.socket.socketpair()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(host.serve, trio.SocketStream(theirs), host.context)
        async with agent_on(trio.SocketStream(ours), session) as agent:
            yield agent


@asynccontextmanager
async def agent_at(path: str, session: str = "session-1") -> AsyncIterator[Agent]:
    """Connect an agent to a daemon's agents' socket."""
    async with agent_on(await connect_as_agent(path), session) as agent:
        yield agent
