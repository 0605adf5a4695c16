"""The protocol of the server, message by message, without a host."""

import json
from contextlib import asynccontextmanager

import anyio
import pytest
import trio

from acpterm.api.errors import DaemonError
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError
from acpterm.mcp.connection import FormQuestion, client_of
from acpterm.mcp.questions import Jobs
from acpterm.mcp.server import open_server
from acpterm.mcp.types import CallToolResult, TextContent
from tests.support.depth import DEADLINE_S
from tests.support.mcp import MODERN

INITIALIZE = {"protocolVersion": "2025-06-18", "clientInfo": {"name": "x"}, "capabilities": {}}


class Peer:
    def __init__(self):
        self.send, self.received = trio.open_memory_channel(10)
        self.connection = None

    async def post(self, method, params, identifier=None):
        message = {"jsonrpc": "2.0", "method": method, "params": params}
        message |= {} if identifier is None else {"id": identifier}
        await self.connection.receive(json.dumps(message).encode() + b"\n")

    async def ask(self, method, **params):
        await self.post(method, params, 1)
        with trio.fail_after(DEADLINE_S):
            answer = await self.received.receive()
        return answer["result"] if "result" in answer else answer["error"]


@asynccontextmanager
async def serving(connect=None):
    peer = Peer()

    async def send(line, _about):
        await peer.send.send(json.loads(line))

    def fail(error):
        raise error

    opening = open_server("session", Settings(), connect, "/", on_error=fail)
    async with opening as server, server.connection(send) as peer.connection:
        yield peer


async def test_request_before_initialize_is_an_error():
    async with serving() as peer:
        assert (await peer.ask("tools/list"))["code"] == -32602
        assert (await peer.ask("initialize", **INITIALIZE))["protocolVersion"] == "2025-06-18"
        assert "tools" in await peer.ask("tools/list")


async def test_unknown_version_of_the_handshake_gets_the_latest():
    async with serving() as peer:
        answer = await peer.ask("initialize", **{**INITIALIZE, "protocolVersion": "1999-01-01"})
        assert answer["protocolVersion"] == "2025-11-25"


async def test_results_of_2026_have_their_members_and_those_of_2025_do_not():
    async with serving() as peer:
        modern = await peer.ask("tools/list", _meta=MODERN)
        assert modern["resultType"] == "complete"
        assert modern["ttlMs"] > 0
        assert modern["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "acpterm"
        await peer.ask("initialize", **INITIALIZE)
        assert (await peer.ask("tools/list")).keys() == {"tools"}


async def test_unknown_version_of_a_request_is_an_error_with_those_that_are_served():
    wrong = {**MODERN, "io.modelcontextprotocol/protocolVersion": "2027-01-01"}
    async with serving() as peer:
        error = await peer.ask("server/discover", _meta=wrong)
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}


@pytest.mark.parametrize(
    ("method", "params", "code"),
    [
        ("nope", {}, -32601),
        ("tools/call", {"name": 5}, -32602),
        ("subscriptions/listen", {"notifications": {"resourceSubscriptions": 1}}, -32602),
    ],
)
async def test_wrong_request_is_an_error(method, params, code):
    async with serving() as peer:
        assert (await peer.ask(method, **params, _meta=MODERN))["code"] == code


@pytest.mark.parametrize(
    ("elicitation", "can_ask"),
    [(None, False), ([], False), ({}, True), ({"form": {}}, True), ({"url": {}}, False)],
)
def test_client_can_ask_if_it_has_forms(elicitation, can_ask):
    assert client_of({"name": "x"}, {"elicitation": elicitation}).can_ask == can_ask


async def test_wrong_arguments_are_an_error_in_the_result():
    async with serving() as peer:
        for arguments in ([], {"sessionId": {}}):
            call = {"name": "terminal_screen", "arguments": arguments}
            result = await peer.ask("tools/call", **call, _meta=MODERN)
            assert result["isError"]
            assert "terminal_screen: " in result["content"][0]["text"]


async def test_malformed_answer_is_none_and_a_malformed_state_is_an_error():
    async def work(ask):
        return CallToolResult(content=[TextContent(str(await ask(FormQuestion("?", {}))))])

    async with anyio.create_task_group() as group:
        jobs = Jobs(group)
        state = (await jobs.serve({}, work))["requestState"]
        with pytest.raises(RpcError):
            await jobs.serve({"requestState": [state]}, work)
        result = await jobs.serve({"requestState": state, "inputResponses": ["x"]}, work)
    assert result.content == [TextContent("None")]


@pytest.mark.parametrize("params", [[], {"requestId": []}, {"requestId": 7}])
async def test_wrong_cancellation_is_ignored(params):
    async with serving() as peer:
        await peer.post("notifications/cancelled", params)
        assert await peer.ask("ping") == {}


async def test_cancelled_request_gets_no_response_and_its_id_is_free_again():
    calling = trio.Event()

    @asynccontextmanager
    async def connect(_agent, _asks):
        if calling.is_set():
            raise DaemonError("there is no daemon")
        calling.set()
        await trio.sleep_forever()
        yield

    async with serving(connect) as peer:
        await peer.ask("initialize", **INITIALIZE)
        call = {"name": "terminal_screen", "arguments": {"sessionId": "term-1"}}
        await peer.post("tools/call", call, 1)
        with trio.fail_after(DEADLINE_S):
            await calling.wait()
        await peer.post("notifications/cancelled", {"requestId": 1})
        await peer.post("ping", {}, 2)
        with trio.fail_after(DEADLINE_S):
            assert (await peer.received.receive())["id"] == 2
            await trio.testing.wait_all_tasks_blocked()
        assert (await peer.ask("tools/call", **call))["isError"]
