"""Terminal sessions as resources."""

import json
from functools import partial

import mcp_types as types
import pytest
import trio
from mcp.shared.exceptions import MCPError

import acpterm
from acpterm.config import Settings
from acpterm.mcp.server import open_server
from acpterm.web.mcp_sessions import log_error
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.mcp import MODERN, PATIENT, listening, mcp_tools


@pytest.mark.costly
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_sessions_are_resources(tmp_path, mode):
    async with mcp_tools(tmp_path, mode=mode) as tools:
        await tools.call("terminal_start", command="echo one; exec cat")
        listed = (await tools.client.list_resources()).resources
        assert [str(each.uri) for each in listed] == ["acpterm://terminal/term-1"]
        assert listed[0].description == "Output of: echo one; exec cat"
        output = await tools.client.read_resource("acpterm://terminal/term-1")
        assert [each.text for each in output.contents] == ["one\n"]
        screen = await tools.client.read_resource("acpterm://terminal/term-1/screen")
        assert [each.text for each in screen.contents] == ["one"]


async def test_unknown_resource_is_an_error(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        with pytest.raises(MCPError, match="there is no resource 'acpterm://terminal/term-9'"):
            await tools.client.read_resource("acpterm://terminal/term-9")


@pytest.mark.filterwarnings("ignore:resources/")
async def test_subscriber_of_2025_is_notified_of_output(tmp_path):
    updated = trio.Event()

    async def on_message(message):
        if isinstance(message, types.ResourceUpdatedNotification):
            assert str(message.params.uri) == "acpterm://terminal/term-1"
            updated.set()

    async with mcp_tools(tmp_path, message_handler=on_message) as tools:
        await tools.call("terminal_start", command="read line; echo got $line; exec cat")
        await tools.client.subscribe_resource("acpterm://terminal/term-1")
        assert not updated.is_set()
        await tools.call("terminal_continue", sessionId="term-1", stdin="it\n")
        with trio.fail_after(DEADLINE_S):
            await updated.wait()
        await tools.client.unsubscribe_resource("acpterm://terminal/term-1")


async def test_client_of_2025_is_notified_of_sessions_without_a_subscription(tmp_path):
    changed = trio.Event()

    async def on_message(message):
        if isinstance(message, types.ResourceListChangedNotification):
            changed.set()

    async with mcp_tools(tmp_path, message_handler=on_message) as tools:
        await tools.call("terminal_start", command="cat")
        with trio.fail_after(DEADLINE_S):
            await changed.wait()


async def test_subscriber_of_2026_is_notified_of_output_and_sessions(tmp_path):
    async with mcp_tools(tmp_path, mode="auto") as tools:
        await tools.call("terminal_start", command="read line; echo got $line; exec cat")
        uri = "acpterm://terminal/term-1"
        async with tools.client.listen(
            resource_subscriptions=[uri], resources_list_changed=True
        ) as events:
            await tools.call("terminal_continue", sessionId="term-1", stdin="it\n")
            with trio.fail_after(DEADLINE_S):
                assert (await anext(events)).uri == uri
            await tools.call("terminal_stop", sessionId="term-1")
            with trio.fail_after(DEADLINE_S):
                kinds = {type(await anext(events)).__name__ for _ in range(1)}
        assert kinds <= {"ResourcesListChanged", "ResourceUpdated"}


async def test_slow_listener_does_not_hold_up_another(tmp_path):
    path = str(tmp_path / "mcp.sock")
    sent, received = trio.open_memory_channel[str](100)
    stalled = trio.Event()

    async def stall(line, _about):
        if b"list_changed" in line:
            stalled.set()
            await trio.sleep_forever()

    async def send(line, _about):
        await sent.send(line.decode())

    async def until(text):
        with trio.fail_after(DEADLINE_S):
            while text not in await received.receive():
                pass

    def post(method, identifier, **params):
        message = {"jsonrpc": "2.0", "id": identifier, "method": method}
        return json.dumps(message | {"params": {"_meta": MODERN, **params}}).encode() + b"\n"

    connect = partial(acpterm.connect, session="mcp", socket=path)
    async with (
        host_here(profile="open", **PATIENT) as host,
        listening(host, path),
        open_server(
            "session",
            Settings(**PATIENT),
            lambda agent, asks: connect(agent=agent, asks=asks),
            str(tmp_path),
            on_error=log_error,
        ) as server,
        server.connection(stall) as slow,
        server.connection(send) as quick,
    ):
        listen = post("subscriptions/listen", 1, notifications={"resourcesListChanged": True})
        await slow.receive(listen)
        await quick.receive(listen)
        await until("acknowledged")
        for identifier in (2, 3):
            start = {"name": "terminal_start", "arguments": {"command": "cat"}}
            await quick.receive(post("tools/call", identifier, **start))
            await until("list_changed")
        assert stalled.is_set()
