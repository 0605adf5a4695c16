"""Connections that misbehave, and their limits."""

import json
from contextlib import suppress

import pytest
import trio
from starlette.responses import PlainTextResponse
from starlette.routing import Route, WebSocketRoute
from wsproto import events

from acpterm.web import http_connection, server
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.web import send_request, web_here

MIB = 1 << 20


@pytest.fixture
async def web(tmp_path):
    async with web_here(tmp_path) as web:
        yield web


async def received_until_closed(stream):
    received = b""
    with trio.fail_after(DEADLINE_S):
        while data := await stream.receive_some():
            received += data
    return received


async def test_connection_serves_several_requests(web):
    stranger = web.stranger()
    async with await stranger.connect() as stream:
        for _ in range(3):
            reply = await send_request(stream, "GET", "/nothing", stranger.headers)
            assert reply.status == 404


async def test_pipelined_requests_are_answered_in_order(web):
    host = web.stranger().host.encode()
    async with await web.stranger().connect() as stream:
        one = b"GET /nothing HTTP/1.1\r\nHost: %s\r\n\r\n" % host
        last = b"GET /nothing HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n" % host
        await stream.send_all(one + one + last)
        assert (await received_until_closed(stream)).count(b"HTTP/1.1 404") == 3


async def test_frame_of_more_than_the_limit_closes_the_websocket(tmp_path):
    async with web_here(tmp_path, max_message_bytes=MIB) as web:
        async with web.api_client().user() as user:
            websocket = user.stream
            text = json.dumps({"x": "y" * MIB})
            with trio.fail_after(DEADLINE_S):
                with suppress(trio.BrokenResourceError):
                    await websocket.send_frame(text)
                await user.closed.wait()
            assert websocket.close_code in (1009, 1006)
        async with web.api_client().user() as user:
            assert await user.list() == []


async def test_frame_counts_bytes_and_not_characters(tmp_path):
    async with (
        web_here(tmp_path, max_message_bytes=4096) as web,
        web.api_client().websocket("/user") as websocket,
    ):
        await websocket.send_frame(" " * 2000)
        await websocket.send_frame("\u20ac" * 2000)
        assert await websocket.wait_closed() == 1009


async def test_peer_that_continues_after_a_large_frame_is_disconnected(tmp_path):
    async with (
        web_here(tmp_path, max_message_bytes=MIB) as web,
        web.api_client().websocket("/user") as websocket,
    ):
        part = events.TextMessage(data="x" * MIB, message_finished=False)
        sent = 0
        with suppress(trio.BrokenResourceError), trio.fail_after(DEADLINE_S):
            while sent < 64:
                await websocket.send_event(part)
                sent += 1
        assert sent < 64


async def test_frame_may_be_fragmented_and_contain_line_ends(web):
    request = json.dumps(
        {"jsonrpc": "2.0", "id": 1, "method": "_acpterm/terminal/list", "params": {}},
        indent="\r\n ",
    )
    async with web.api_client().websocket("/user") as websocket:
        half = len(request) // 2
        for text, finished in ((request[:half], False), (request[half:], True)):
            await websocket.send_event(events.TextMessage(data=text, message_finished=finished))
        assert (await websocket.receive_json())["result"] == {"terminals": []}


async def test_binary_frames_are_ignored(web):
    async with web.api_client().websocket("/user") as websocket:
        await websocket.send_event(events.BytesMessage(data=b"\0\xff"))
        await websocket.send_json(
            {"jsonrpc": "2.0", "id": 1, "method": "_acpterm/terminal/list", "params": {}}
        )
        assert (await websocket.receive_json())["id"] == 1


async def test_malformed_frame_gets_an_error_and_the_websocket_stays_open(web):
    async with web.api_client().websocket("/user") as websocket:
        await websocket.send_frame("{")
        assert (await websocket.receive_json())["error"]["code"] == -32700
        await websocket.send_json(
            {"jsonrpc": "2.0", "id": 1, "method": "_acpterm/terminal/list", "params": {}}
        )
        assert (await websocket.receive_json())["id"] == 1


async def test_broken_frame_closes_only_its_websocket(web):
    async with web.api_client().websocket("/user") as websocket, web.api_client().user() as user:
        await websocket.stream.send_all(b"\xff" * 100)
        assert await websocket.wait_closed() in (1002, 1006)
        assert await user.list() == []


async def test_websocket_messages_are_not_compressed(web):
    client = web.api_client()
    headers = [*client.headers, ("Sec-WebSocket-Extensions", "permessage-deflate")]
    async with client.websocket("/user", headers=headers) as websocket:
        assert "sec-websocket-extensions" not in websocket.headers
        await websocket.send_json(
            {"jsonrpc": "2.0", "id": 1, "method": "_acpterm/terminal/list", "params": {}}
        )
        assert (await websocket.receive_json())["id"] == 1


async def test_key_is_not_selected_as_the_subprotocol(web):
    browser = await web.browser()
    async with browser.websocket("/user") as websocket:
        assert websocket.subprotocol == "acpterm"


@pytest.mark.long
async def test_page_that_does_not_read_costs_bounded_memory_and_delays_no_other(web):
    async with web.api_client().websocket("/user") as websocket, web.api_client().user() as user:
        created = await user.request("terminal/create", {"command": "yes"})
        terminal = created["terminalId"]
        attach = {"terminalId": terminal, "token": "t", "cols": 80, "rows": 24}
        await websocket.send_json(
            {"jsonrpc": "2.0", "id": 1, "method": "_acpterm/terminal/attach", "params": attach}
        )

        def position():
            return web.host.terminals.registry.find(terminal).terminal.ring.end

        before = position()
        await poll(lambda: position() > before + 16 * MIB)
        assert max(one._queue._size for one in web.host._connections) < MIB
        assert len(await user.list()) == 1
        with trio.fail_after(DEADLINE_S):
            kinds = []
            # The first screen, what was in the buffers, and a new screen instead of the backlog.
            while "output" not in kinds or kinds[-1] != "screen":
                kinds.append((await websocket.receive_json())["params"]["kind"])
        await user.terminal_request("kill", terminal)


async def test_idle_connection_is_closed(web, monkeypatch):
    monkeypatch.setattr(http_connection, "IDLE_TIMEOUT_S", 0.05)
    async with await web.stranger().connect() as stream:
        assert await received_until_closed(stream) == b""


async def test_connection_with_slow_headers_is_closed(web, monkeypatch):
    monkeypatch.setattr(http_connection, "IDLE_TIMEOUT_S", 0.2)
    closed = trio.Event()
    async with await web.stranger().connect() as stream, trio.open_nursery() as nursery:

        async def read():
            # Data that the server has not read when it closes the connection resets it.
            with trio.fail_after(DEADLINE_S), suppress(trio.BrokenResourceError):
                await stream.receive_some()
            closed.set()

        nursery.start_soon(read)
        with trio.fail_after(DEADLINE_S), suppress(trio.BrokenResourceError):
            await stream.send_all(b"GET / HTTP/1.1\r\n")
            while not closed.is_set():
                await stream.send_all(b"X: y\r\n")
                await trio.sleep(0.01)
        await closed.wait()


@pytest.mark.parametrize("size", [http_connection.HEADERS_MAX, 60_000])
async def test_headers_over_the_limit_are_refused_in_one_piece_too(web, size):
    stranger = web.stranger()
    async with await stranger.connect() as stream:
        headers = [*stranger.headers, ("X-Long", "x" * size)]
        reply = await send_request(stream, "GET", "/", headers)
        assert reply.status == 431
        assert "content-security-policy" in reply.headers
    async with await stranger.connect() as stream:
        headers = [*stranger.headers, ("X-Long", "x" * (http_connection.HEADERS_MAX - 200))]
        assert (await send_request(stream, "GET", "/", headers)).status == 200


@each_case(
    "request_line",
    [
        b"nonsense\r\n\r\n",
        b"GET /user HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        (
            b"GET /user HTTP/1.1\r\nHost: x\r\nConnection: upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: MDEyMzQ1Njc4OTAxMjM0NQ==\r\n\r\n"
        ),
    ],
)
async def test_response_below_the_application_has_the_headers_of_the_page(web, request_line):
    async with await web.stranger().connect() as stream:
        await stream.send_all(request_line)
        received = b""
        with trio.fail_after(DEADLINE_S):
            while b"\r\n\r\n" not in received:
                received += await stream.receive_some()
        assert received.startswith(b"HTTP/1.1 4")
        assert received.count(b"content-security-policy: default-src 'none'") == 1
        assert received.count(b"x-frame-options: DENY") == 1


async def test_silent_websocket_is_closed_although_it_reads(web, monkeypatch):
    async with web.api_client().websocket("/user") as websocket:
        # For the time after the next frame: before, the WebSocket must have been accepted.
        monkeypatch.setattr(http_connection, "SILENCE_TIMEOUT_S", 0.2)
        await websocket.send_frame("{")
        with trio.fail_after(DEADLINE_S):
            # It does not respond to pings.
            while await websocket.stream.receive_some():
                pass


async def test_peer_that_does_not_read_is_disconnected(tmp_path, monkeypatch):
    monkeypatch.setattr(http_connection, "SEND_TIMEOUT_S", 0.2)
    ended = trio.Event()

    async def send(websocket):
        await websocket.accept()
        async with trio.open_nursery() as nursery:

            async def send_forever():
                while True:
                    await websocket.send_text("x" * MIB)

            nursery.start_soon(send_forever)
            while (await websocket.receive())["type"] != "websocket.disconnect":
                pass
            ended.set()
            nursery.cancel_scope.cancel()

    async with (
        web_here(tmp_path, routes=[WebSocketRoute("/flood", send)]) as web,
        web.api_client().websocket("/flood"),
    ):
        with trio.fail_after(DEADLINE_S):
            await ended.wait()


@pytest.mark.long
async def test_request_that_fails_gets_an_error_and_others_are_served(tmp_path):
    async def fail(request):
        raise RuntimeError("a bug")

    async with web_here(tmp_path, routes=[Route("/fail", fail)]) as web:
        stranger = web.stranger()
        reply = await stranger.request("/fail")
        assert (reply.status, "bug" in reply.text) == (500, False)
        assert (await stranger.request("/nothing")).status == 404


@pytest.mark.long
async def test_websocket_that_fails_is_closed_and_others_are_served(tmp_path):
    async def fail(websocket):
        await websocket.accept()
        raise RuntimeError("a bug")

    async with web_here(tmp_path, routes=[WebSocketRoute("/fail", fail)]) as web:
        async with web.stranger().websocket("/fail") as websocket:
            assert await websocket.wait_closed() == 1011
        assert (await web.stranger().request("/nothing")).status == 404


async def test_messages_before_a_close_are_answered_and_no_error_is_made(tmp_path):
    received = []

    async def echo(websocket):
        await websocket.accept()
        async for text in websocket.iter_text():
            received.append(text)
            await websocket.send_text(text)

    async with web_here(tmp_path, routes=[WebSocketRoute("/echo", echo)]) as web:
        async with web.stranger().websocket("/echo") as websocket:
            sent = events.TextMessage("1"), events.TextMessage("2"), events.CloseConnection(1000)
            await websocket.stream.send_all(b"".join(map(websocket.connection.send, sent)))
            assert await websocket.wait_closed() == 1000
        await poll(lambda: received == ["1", "2"])


async def test_connection_is_closed_after_an_unread_body_that_may_be_left_out(web):
    host = web.stranger().host.encode()
    async with await web.stranger().connect() as stream:
        await stream.send_all(
            b"POST /nothing HTTP/1.1\r\nHost: %s\r\nExpect: 100-continue\r\n"
            b"Content-Length: 31\r\n\r\n" % host
        )
        reply = await stream.receive_some()
        assert reply.startswith(b"HTTP/1.1 404")
        assert b"connection: close" in reply.lower()
        await stream.send_all(b"GET /nothing HTTP/1.1\r\nHost: %s\r\n\r\n" % host)
        assert b"HTTP/1.1" not in await received_until_closed(stream)


async def test_response_is_sent_although_the_application_does_not_read_a_body(tmp_path):
    async def ignore(request):
        return PlainTextResponse("ignored")

    async with web_here(tmp_path, routes=[Route("/ignore", ignore, methods=["POST"])]) as web:
        reply = await web.stranger().request("/ignore", "x" * 300_000)
        assert (reply.status, reply.text) == (200, "ignored")
        await poll(lambda: not web.server.connections)


async def test_connections_of_strangers_are_limited_and_leave_room_for_the_user(web, monkeypatch):
    monkeypatch.setattr(server, "STRANGERS_MAX", 3)
    browser = await web.browser()
    async with browser.user() as user:
        streams = [await web.stranger().connect() for _ in range(3)]
        await poll(lambda: len(web.server.connections) == 4)
        reply = await web.stranger().request("/nothing")
        assert (reply.status, reply.text) == (503, "too many connections\n")
        assert await user.list() == []
        for stream in streams:
            await stream.aclose()
        await poll(lambda: len(web.server.connections) == 1)
        assert (await web.stranger().request("/nothing")).status == 404


async def test_connections_are_limited(web, monkeypatch):
    monkeypatch.setattr(server, "CONNECTIONS_MAX", 1)
    async with web.api_client().user():
        assert (await web.api_client().request("/access", {})).status == 503
