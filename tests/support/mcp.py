"""MCP clients of the official SDK, connected to the server of `acpterm mcp` in this process."""

import os
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import mcp
import mcp_types as types
import trio
from mcp.shared._context_streams import create_context_streams
from mcp.shared.message import SessionMessage

import acpterm
from acpterm.api.client import Client as ApiClient
from acpterm.api.questions import Asks
from acpterm.config import Settings
from acpterm.host.host import Host
from acpterm.mcp.server import open_server
from acpterm.mcp.sessions import Connect
from acpterm.mcp.tool_set_names import ToolSetName
from acpterm.web.mcp_sessions import log_error, serve_messages
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.user import user_of

QUICK: dict[str, Any] = {
    "tool_min_interval": 0.1,
    "tool_settle_interval": 0.3,
    "tool_max_interval": 5.0,
    "tool_structured": True,
}
"""Settings with short waits: a call returns soon, also if the program runs on."""

PATIENT: dict[str, Any] = {
    "tool_min_interval": 0.1,
    "tool_settle_interval": DEADLINE_S,
    "tool_max_interval": DEADLINE_S,
    "tool_structured": True,
}
"""Settings for programs that end or wait for input: a call returns then, however late that is."""

MODERN = {
    "io.modelcontextprotocol/protocolVersion": "2026-07-28",
    "io.modelcontextprotocol/clientCapabilities": {},
}
"""The `_meta` of a request in the protocol of 2026."""

DANGEROUS = "rm -r no-such-directory"


def variables(settings: dict[str, Any]) -> dict[str, str]:
    """Return the environment variables that set `settings` for `acpterm` in another process."""
    return {f"ACPTERM_{name.upper()}": str(value) for name, value in settings.items()}


class Result(NamedTuple):
    """The result of a call: its blocks of text, its structured content, and whether it failed."""

    blocks: list[str]
    data: dict[str, Any]
    is_error: bool

    @property
    def state(self) -> str:
        """The first block, which is the line with the state."""
        return self.blocks[0].removesuffix("\n")

    @property
    def text(self) -> str:
        """The last block, which is the text after the state."""
        return self.blocks[-1]


class Tools(NamedTuple):
    """An MCP client, and the host that runs its terminals."""

    client: mcp.Client
    host: Host

    async def call(self, name: str, /, progress: Any = None, **arguments: Any) -> Result:
        """Call a tool. The SDK checks the structured content with the tool's schema."""
        result = await self.client.call_tool(name, arguments, progress_callback=progress)
        return result_of(result)


def result_of(result: types.CallToolResult) -> Result:
    """Return the result of a call in a form that tests can compare."""
    blocks = [block.text for block in result.content if isinstance(block, types.TextContent)]
    assert len(blocks) == len(result.content)
    return Result(blocks, result.structured_content or {}, bool(result.is_error))


@asynccontextmanager
async def listening(host: Host, path: str) -> AsyncIterator[None]:
    """Let agents connect to a host in this process at a Unix socket."""
    with trio.socket.socket(trio.socket.AF_UNIX) as listener:
        await listener.bind(path)
        listener.listen()
        async with trio.open_nursery() as nursery:

            async def accept() -> None:
                while True:
                    stream, _ = await listener.accept()
                    nursery.start_soon(host.serve_agent_socket, trio.SocketStream(stream))

            nursery.start_soon(accept)
            yield
            nursery.cancel_scope.cancel()
    os.unlink(path)


@asynccontextmanager
async def in_process(
    tools: ToolSetName, settings: Settings, connect: Connect, cwd: str
) -> AsyncIterator[tuple[Any, Any]]:
    """Run the server for one client; yield the client's streams, a transport of the SDK."""
    to_server, received = create_context_streams[SessionMessage | Exception](0)
    sent, to_client = create_context_streams[SessionMessage | Exception](0)

    async def serve() -> None:
        async with open_server(tools, settings, connect, cwd, on_error=log_error) as server:
            await serve_messages(received, sent, server)

    async with to_server, received, sent, to_client, trio.open_nursery() as nursery:
        nursery.start_soon(serve)
        yield to_client, to_server
        nursery.cancel_scope.cancel()


@asynccontextmanager
async def mcp_tools(
    tmp_path: Path,
    tools: ToolSetName = "session",
    *,
    mode: str = "legacy",
    pool_profile: str | None = None,
    elicit: Any = None,
    message_handler: Any = None,
    agent: str = "test-client",
    **settings: Any,
) -> AsyncIterator[Tools]:
    """Run a host and the MCP server, and connect the SDK's client.

    `mode` is the client's: `legacy` goes through memory streams with the handshake of 2025, `auto`
    uses the protocol of 2026. `pool_profile` is a profile of the policy that applies in addition.
    `settings` are added to `PATIENT`.
    """
    chosen = {"profile": "open", **PATIENT, **settings}
    path = str(tmp_path / "mcp.sock")
    async with host_here(**chosen) as host, listening(host, path):

        def connect(agent: str, asks: Asks | None) -> AbstractAsyncContextManager[ApiClient]:
            return acpterm.connect(
                agent=agent,
                asks=asks,
                session="mcp",
                socket=path,
                profile=pool_profile,
            )

        async with mcp.Client(
            in_process(tools, Settings(**chosen), connect, os.getcwd()),
            mode=mode,
            elicitation_callback=elicit,
            message_handler=message_handler,
            client_info=types.Implementation(name=agent, version="1"),
        ) as client:
            yield Tools(client, host)


async def pending(host: Host) -> list[Any]:
    """Return the pending questions of a host."""
    async with user_of(host) as user:
        found: list[Any] = (await user.request("approval/list"))["approvals"]
        return found


async def until_pending(host: Host, count: int) -> list[Any]:
    """Wait until a host has `count` pending questions."""
    with trio.fail_after(DEADLINE_S):
        while len(found := await pending(host)) != count:
            await trio.sleep(0.02)
    return found


async def answer(host: Host, decision: str) -> None:
    """Answer the pending question of a host as the user, once there is one."""
    (question,) = await until_pending(host, 1)
    params = {"approvalId": question["approvalId"], "decision": decision}
    async with user_of(host) as user:
        await user.request("approval/answer", params)
