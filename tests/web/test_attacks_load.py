"""Attacks on the resources of the daemon: many sockets, large messages, slow peers.

After each, the user's Unix socket answers at once, and the worker has not grown much.
"""

import json
import random
import struct
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial

import pytest
import trio

from acpterm.web import http_connection, request_body
from acpterm.web.server import CONNECTIONS_MAX, STRANGERS_MAX
from tests.support.attacks import (
    cpu_seconds,
    create,
    daemon_in_a_thread,
    owner_of,
    raw_status,
    resident_bytes,
    with_key,
)
from tests.support.depth import DEADLINE_S
from tests.support.stopwatch import stopwatch
from tests.support.user import user_at
from tests.support.web import RefusedError, refused_status, web_daemon, web_here

MIB = 1 << 20
ANSWER_CPU_S = 2.0
"""How many seconds of the processor the worker may take to answer on the user's socket."""
ANSWER_S = 5.0
"""How many seconds the answer may take: a worker that is blocked needs no processor."""


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with daemon_in_a_thread(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
async def owner(web):
    async with owner_of(web) as user:
        yield user


async def at_once(pid, ask):
    """Return what `ask` returns; check how long the worker `pid` takes for it."""
    before = cpu_seconds(pid)
    with trio.fail_after(DEADLINE_S):
        async with stopwatch() as parts:
            answer = await ask()
    assert cpu_seconds(pid) - before < ANSWER_CPU_S
    assert sum(parts) < ANSWER_S
    return answer


@asynccontextmanager
async def bounded(owner, mib):
    """Check that the worker grows by at most `mib` MiB in the block, and answers at once.

    Yield `at_once` for this worker.
    """
    pid = (await owner.request("status"))["workerPid"]
    before = resident_bytes(pid)
    yield partial(at_once, pid)
    grown = resident_bytes(pid) - before
    assert grown < mib * MIB, f"{grown / MIB:.1f} MiB"
    assert (await at_once(pid, partial(owner.request, "status")))["workerPid"] == pid


SIZES = [10**6, 10_001, 2**31, 2**63, 10**30, 0, -1, 1.5, "80", None, [80]]


@pytest.mark.parametrize("size", SIZES)
async def test_resize_to_an_impossible_size_is_refused_everywhere(web, owner, size):
    terminal = await create(owner)
    browser = await web.browser()
    shared = await owner.request("share/create", {"terminalId": terminal, "write": True})
    guest = web.stranger()
    await guest.log_in(shared["url"])
    async with bounded(owner, 20):
        for one in (browser, guest):
            async with one.websocket("/user") as socket:
                for number, (method, more) in enumerate(
                    [("attach", {"terminalId": terminal}), ("resize", {"terminalId": terminal})]
                ):
                    for params in ({"cols": size, "rows": 24}, {"cols": 80, "rows": size}):
                        await socket.send_json(
                            {
                                "jsonrpc": "2.0",
                                "id": number,
                                "method": f"_acpterm/terminal/{method}",
                                "params": {**more, **params, "token": "t"},
                            }
                        )
                        assert "error" in await socket.receive_json(), (method, params)
        async with browser.websocket("/ws") as socket:
            listed = next(iter(await owner.list()))
            for params in ({"cols": size, "rows": 24}, {"cols": 80, "rows": size}):
                message = {"type": "pty:resize", "id": listed["terminalId"], **params}
                await socket.send_json(message)
                while (found := await socket.receive_json())["type"] == "terminal":
                    pass
                assert found["type"] == "pty:error"
    (found,) = await owner.list()
    assert (found["cols"], found["rows"]) == (200, 40)


async def test_spawn_with_an_impossible_size_is_refused(web, owner):
    browser = await web.browser()
    for size in SIZES[:6]:
        reply = await browser.request("/pty/spawn", {"cols": size, "rows": 24})
        assert reply.status in (200, 400)
    for found in await owner.list():
        assert (found["cols"], found["rows"]) == (200, 40)


@pytest.mark.long
async def test_many_connections_of_strangers_leave_the_user_in(tmp_path):
    """The strangers come twice: connections that were closed must not count for the limit."""
    async with web_daemon(tmp_path) as web, user_at(web.daemon.user_path) as owner:
        browser = await web.browser()

        async def all_are_answered():
            assert await page.list() == []
            assert await owner.list() == []
            async with user_at(web.daemon.user_path) as other:
                assert await other.list() == []

        # One that is open stays open.
        async with browser.user() as page, bounded(owner, 40) as answered:
            for _ in range(2):
                async with AsyncExitStack() as stack:
                    for number in range(3 * CONNECTIONS_MAX):
                        stream = await browser.connect()
                        stack.push_async_callback(trio.aclose_forcefully, stream)
                        if number < STRANGERS_MAX:
                            # Half a request.
                            await stream.send_all(b"GET / HTTP/1.1\r\nHost: ")
                    # They have used up what strangers may have.
                    assert await raw_status(browser, "GET /nothing HTTP/1.1") in (0, 503)
                    await answered(all_are_answered)
                with trio.fail_after(DEADLINE_S):
                    while await raw_status(browser, "GET /nothing HTTP/1.1") in (0, 503):
                        await trio.sleep(0.05)


@pytest.mark.long
async def test_many_connections_with_an_access_are_limited(tmp_path):
    async with web_daemon(tmp_path) as web, user_at(web.daemon.user_path) as owner:
        client = web.api_client()
        async with bounded(owner, 120) as answered, AsyncExitStack() as stack:
            refused = 0
            for _ in range(CONNECTIONS_MAX + 20):
                try:
                    await stack.enter_async_context(client.websocket("/user"))
                except (RefusedError, trio.BrokenResourceError, EOFError):
                    refused += 1
            assert refused == 20
            assert await answered(owner.list) == []
        with trio.fail_after(DEADLINE_S):
            while await refused_status(client.websocket("/user")) == 503:
                await trio.sleep(0.05)


@pytest.mark.exhaustive
@pytest.mark.long
async def test_client_that_does_not_read_costs_little_and_delays_no_other(web, owner):
    terminal = await create(owner, "yes")
    browser = await web.browser()
    async with bounded(owner, 40) as answered, AsyncExitStack() as stack:
        for _ in range(8):
            socket = await stack.enter_async_context(browser.websocket("/user"))
            for method, params in (
                ("attach", {"cols": 120, "rows": 40}),
                ("follow", {}),
            ):
                await socket.send_json(
                    {
                        "jsonrpc": "2.0",
                        "id": method,
                        "method": f"_acpterm/terminal/{method}",
                        "params": {"terminalId": terminal, "token": method, **params},
                    }
                )
            pool = await stack.enter_async_context(browser.websocket("/ws"))
            await pool.send_json({"type": "pty:attach", "id": terminal})
        until = trio.current_time() + 3
        while trio.current_time() < until:
            await answered(partial(owner.terminal_request, "get", terminal))
            await trio.sleep(0.1)


@pytest.mark.exhaustive
@pytest.mark.long
async def test_client_that_sends_and_does_not_read_is_not_read_either(web, owner):
    browser = await web.browser()
    request = {"jsonrpc": "2.0", "id": 1, "method": "_acpterm/status", "params": {}}
    async with bounded(owner, 40), browser.websocket("/user") as socket:
        with trio.move_on_after(3) as scope:
            while True:
                await socket.send_json(request)
        assert scope.cancelled_caught


async def test_request_whose_headers_come_slowly_is_ended(tmp_path, monkeypatch):
    """This attack is known as Slowloris. The connection is never idle for long."""
    monkeypatch.setattr(http_connection, "IDLE_TIMEOUT_S", 0.5)
    async with web_here(tmp_path) as web, await web.stranger().connect() as stream:
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:

                async def drip():
                    with suppress(trio.BrokenResourceError):
                        while True:
                            await stream.send_all(b"X-A: 1\r\n")
                            await trio.sleep(0.05)

                await stream.send_all(b"GET / HTTP/1.1\r\n")
                nursery.start_soon(drip)
                with suppress(trio.BrokenResourceError):
                    while await stream.receive_some():
                        pass
                nursery.cancel_scope.cancel()


async def test_body_that_comes_slowly_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(request_body, "_TIMEOUT_S", 0.5)
    async with web_here(tmp_path) as web:
        stranger = web.stranger()
        head = "".join(f"{name}: {value}\r\n" for name, value in stranger.headers)
        async with await stranger.connect() as stream:
            await stream.send_all(
                f"POST /login HTTP/1.1\r\n{head}Content-Length: 100\r\n\r\n{{".encode()
            )
            with trio.fail_after(DEADLINE_S):
                assert (await stream.receive_some()).startswith(b"HTTP/1.1 400")


async def test_headers_that_are_too_large_are_refused(web, owner):
    stranger = web.stranger()
    async with bounded(owner, 20):
        line = f"X-A: {'a' * 100_000}"
        assert await raw_status(stranger, "GET / HTTP/1.1", line) in (0, 400, 431)
        with trio.fail_after(DEADLINE_S):
            async with await stranger.connect() as stream:
                with suppress(trio.BrokenResourceError):
                    await stream.send_all(b"GET / HTTP/1.1\r\n")
                    while True:
                        await stream.send_all(b"X-A: " + b"a" * 1000 + b"\r\n")


@pytest.mark.costly
@pytest.mark.parametrize("path", ["/login", "/logout", "/access", "/pty/spawn", "/mcp"])
async def test_body_that_is_too_large_is_refused_or_not_read(web, owner, path):
    sent = [(web.stranger(), [("Host", web.stranger().host), ("Origin", web.origin)])]
    client = web.api_client()
    sent.append((client, client.headers))
    lines = [f"{name}: {value}" for name, value in client.headers]
    # The first request imports what the path needs, such as the MCP library.
    await raw_status(client, f"POST {path} HTTP/1.1", *lines, "Content-Length: 2", body=b"{}")
    async with bounded(owner, 20):
        for browser, headers in sent:
            lines = [f"{name}: {value}" for name, value in headers]
            for length in (f"Content-Length: {64 * MIB}", "Transfer-Encoding: chunked"):
                body = b" " * MIB
                if "chunked" in length:
                    body = b"100000\r\n" + body + b"\r\n"
                status = await raw_status(
                    browser, f"POST {path} HTTP/1.1", *lines, length, body=body * 8
                )
                if path in ("/logout", "/access") and browser is client:
                    # They do not read it.
                    assert status in (0, 200, 204)
                else:
                    assert status in (0, 400, 401, 413), (path, length)


def frame(opcode: int, payload: bytes, *, last: bool = True, length: int | None = None) -> bytes:
    """Return a WebSocket frame of a client, masked with zeros.

    `length` is the length that its head claims, by default the right one.
    """
    head = bytes([opcode | (0x80 if last else 0), 0x80 | 127])
    return head + struct.pack(">Q", len(payload) if length is None else length) + bytes(4) + payload


TEXT, CONTINUATION, BINARY, PING = 1, 0, 2, 9


async def closed_by(socket) -> bool:
    """Return whether the server closes the WebSocket, whatever comes before."""
    with trio.fail_after(DEADLINE_S):
        try:
            while await socket.stream.receive_some(1 << 16):
                pass
        except trio.BrokenResourceError:
            pass
    return True


async def pour(socket, frames) -> bool:
    """Send frames until the server closes the WebSocket; return whether it did."""
    try:
        with trio.fail_after(DEADLINE_S):
            for one in frames:
                await socket.stream.send_all(one)
    except trio.BrokenResourceError:
        return True
    return await closed_by(socket)


@pytest.mark.long
@pytest.mark.parametrize("path", ["/user", "/ws", "/acp"])
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
async def test_frame_over_the_limit_closes_the_websocket(web, owner, path, opcode):
    client = web.api_client()
    limit = 64 * MIB
    async with bounded(owner, 130), client.websocket(path) as socket:
        first = frame(opcode, b" " * MIB, length=limit + 2 * MIB)
        assert await pour(socket, [first, *(b" " * MIB for _ in range(65))])


@pytest.mark.long
@pytest.mark.parametrize("path", ["/user", "/ws", "/acp"])
async def test_fragments_over_the_limit_close_the_websocket(web, owner, path):
    client = web.api_client()

    def fragments():
        yield frame(TEXT, b" " * MIB, last=False)
        for _ in range(70):
            yield frame(CONTINUATION, b" " * MIB, last=False)

    async with bounded(owner, 130), client.websocket(path) as socket:
        assert await pour(socket, fragments())


async def test_endless_small_fragments_close_the_websocket(web, owner):
    client = web.api_client()

    def fragments():
        yield frame(TEXT, b" ", last=False)
        for _ in range(100):
            yield frame(CONTINUATION, b"", last=False) * 10_000

    async with bounded(owner, 60) as answered, client.websocket("/user") as socket:
        with trio.move_on_after(20):
            await pour(socket, fragments())
        await answered(owner.list)


async def test_frame_of_a_guest_is_limited_more(web, owner):
    """The link of a share may be known to many."""
    terminal = await create(owner)
    shared = await owner.request("share/create", {"terminalId": terminal, "write": True})
    guest = web.stranger()
    await guest.log_in(shared["url"])
    async with bounded(owner, 30), guest.websocket("/user") as socket:
        assert await pour(socket, [frame(TEXT, b" " * (4 * MIB))])


@pytest.mark.parametrize(
    "data",
    [
        frame(TEXT, b"\xff\xfe"),
        frame(3, b"reserved"),
        frame(PING, b"x" * 200),
        frame(TEXT | 0x40, b"compressed?"),
        frame(CONTINUATION, b"of nothing"),
        b"\x81\x05hello",  # not masked
        random.Random(1).randbytes(4096),
    ],
    ids=["utf8", "opcode", "ping", "rsv1", "continuation", "unmasked", "random"],
)
@pytest.mark.parametrize("path", ["/user", "/ws"])
async def test_invalid_frames_close_the_websocket(web, owner, path, data):
    browser = await web.browser()
    async with bounded(owner, 20), browser.websocket(path) as socket:
        await socket.stream.send_all(data + bytes(64))
        assert await closed_by(socket)


async def test_deep_json_is_an_error(web, owner):
    browser = await web.browser()
    deep = "[" * 100_000 + "]" * 100_000
    client = web.api_client()
    accept = ("Accept", "application/json, text/event-stream")
    headers = [*client.headers, accept, ("Content-Type", "application/json")]
    lines = [f"{name}: {value}" for name, value in headers]

    async def post(body: bytes) -> int:
        length = f"Content-Length: {len(body)}"
        return await raw_status(client, "POST /mcp HTTP/1.1", *lines, length, body=body)

    assert await post(b"{}") == 400  # this imports the library for MCP
    async with bounded(owner, 30):
        async with browser.websocket("/user") as socket:
            await socket.send_frame(deep)
            assert "error" in await socket.receive_json()
        async with browser.websocket("/ws") as socket:
            await socket.send_frame(deep)
            assert (await socket.receive_json())["type"] == "pty:error"
        for body in (deep.encode(), json.dumps({"a": 1}).encode() * 10):
            assert await post(body) == 400


@pytest.mark.long
async def test_many_requests_on_one_websocket_are_limited(web, owner):
    terminal = await create(owner)
    browser = await web.browser()
    request = {"jsonrpc": "2.0", "method": "_acpterm/terminal/wait"}
    request["params"] = {"terminalId": terminal}
    async with bounded(owner, 60), browser.websocket("/user") as socket:
        for number in range(5000):
            await socket.send_json({**request, "id": number})
        assert "requests are pending" in (await socket.receive_json())["error"]["message"]


@pytest.mark.long
async def test_login_with_a_wrong_token_many_times_is_quick_and_harmless(web, owner):
    stranger = web.stranger()
    async with bounded(owner, 20):
        for number in range(200):
            reply = await stranger.log_in(f"{web.origin}/login#{number}")
            assert reply.status == 403
    browser = await web.browser()
    assert (await browser.request("/access", {}, headers=with_key(browser))).status == 200
