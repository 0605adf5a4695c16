"""`/mcp`: the MCP tools over HTTP, used by the official client."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2
import mcp
import mcp_types as types
import pytest
import trio
from hypercorn.config import Config
from hypercorn.trio import serve
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError
from starlette.applications import Starlette
from starlette.routing import Route

from acpterm.host.host import Host
from acpterm.web import mcp_sessions
from acpterm.web.mcp_door import McpDoor
from tests.support.hosts import host_here
from tests.support.mcp import QUICK, Result, result_of
from tests.support.polling import poll

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}


class Door(NamedTuple):
    """A host, and where its `/mcp` is."""

    host: Host
    url: str
    running: McpDoor

    @asynccontextmanager
    async def client(
        self, path: str = "", headers: dict[str, str] | None = None, **options: Any
    ) -> AsyncIterator["Tools"]:
        """Connect the SDK's client."""
        name = options.pop("agent", "test-client")
        options.setdefault("mode", "legacy")
        async with (
            httpx2.AsyncClient(headers=headers or {}, timeout=30) as http,
            mcp.Client(
                streamable_http_client(self.url + path, http_client=http),
                client_info=types.Implementation(name=name, version="1"),
                **options,
            ) as client,
        ):
            yield Tools(client)

    @property
    def terminals(self) -> list[str]:
        """The commands of the terminals that are not released."""
        return [
            entry.record.command for entry in self.host.state.registry if entry.released_at is None
        ]


class Tools(NamedTuple):
    client: mcp.Client

    async def call(self, name: str, /, progress: Any = None, **arguments: object) -> Result:
        return result_of(
            await self.client.call_tool(name, arguments, progress_callback=progress)
        )


@asynccontextmanager
async def door(**settings: Any) -> AsyncIterator[Door]:
    async with host_here(**{"profile": "open", **QUICK, **settings}) as host:
        async with serving(host) as found:
            yield found


@asynccontextmanager
async def serving(host: Host) -> AsyncIterator[Door]:
    running = McpDoor(host)
    app = Starlette(routes=[Route("/mcp", running), Route("/mcp/{tools}", running)])
    config = Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    async with trio.open_nursery() as nursery:
        nursery.start_soon(running.run)
        (address,) = await nursery.start(serve, app, config)
        yield Door(host, f"{address}/mcp", running)
        nursery.cancel_scope.cancel()


async def test_client_over_http_uses_a_terminal_which_ends_with_the_session(tmp_path):
    async with door() as at:
        headers = {"Acpterm-Cwd": str(tmp_path)}
        async with at.client(headers=headers, agent="my-agent") as tools:
            started = await tools.call("terminal_start", command="cat")
            assert started.data["cwd"] == str(tmp_path)
            result = await tools.call("terminal_continue", sessionId="term-1", stdin="hi\n")
            assert result.data["output"] == "hi\nhi\n"
            (entry,) = at.host.state.registry
            assert entry.agent is not None
            assert entry.agent.name == "my-agent"
        # The client ends the session with DELETE.
        await poll(lambda: not at.terminals)


@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("", "terminal_bash"),
        ("/session", "terminal_bash"),
        ("/pool", "spawn_background_terminal"),
        ("/codex", "exec_command"),
        ("/claude", "BashOutput"),
    ],
)
async def test_path_selects_the_tools(path, tool):
    async with door() as at, at.client(path) as tools:
        listed = await tools.client.list_tools()
    assert tool in [one.name for one in listed.tools]


async def test_tools_of_the_pool_have_its_profile():
    async with door() as at, at.client("/pool") as tools:
        result = await tools.call("spawn_background_terminal", command=["rm", "x"], cwd="/")
    assert result.blocks == ["Command blocked for security reasons"]
