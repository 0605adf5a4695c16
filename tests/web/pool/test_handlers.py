"""`/ws` and `/pty/spawn` of a daemon's HTTP server."""

import json

import pytest
import trio

from tests.support.user import user_at
from tests.support.web import RefusedError, web_daemon


async def until(websocket, is_wanted):
    while not is_wanted(message := await websocket.receive_json()):
        pass
    return message


async def test_browser_spawns_a_terminal_attaches_and_types(tmp_path):
    async with web_daemon(tmp_path) as web:
        browser = await web.browser()
        async with browser.websocket("/ws") as socket:
            assert socket.subprotocol == "acpterm"
            script = "stty -echo; echo ready; read -r x; echo got:$x; exit 3"
            reply = await browser.request(
                "/pty/spawn", {"cwd": str(tmp_path), "command": ["sh", "-c", script]}
            )
            terminal = reply.json()
            created = await until(socket, lambda m: m.get("event") == "created")
            await socket.send_json({"type": "pty:attach", "id": "pty-1"})
            attached = await until(socket, lambda m: m["type"] == "pty:attached")
            if not attached["history"]:
                await until(socket, lambda m: m["type"] == "pty:output")
            await socket.send_json({"type": "pty:input", "id": "pty-1", "data": "one\n"})
            output = ""
            while "got:one" not in output:
                output += (await until(socket, lambda m: m["type"] == "pty:output"))["data"]
            exited = await until(socket, lambda m: m["type"] == "pty:exit")
    assert (reply.status, reply.headers["content-type"]) == (200, "application/json")
    assert list(terminal) == ["id", "cwd", "owner", "visible", "createdAt"]
    assert (terminal["id"], terminal["cwd"], terminal["owner"]) == ("pty-1", str(tmp_path), "user")
    assert created["terminal"] == terminal
    assert exited == {"type": "pty:exit", "id": "pty-1", "exitCode": 3}


async def test_api_client_uses_the_socket_with_the_bearer_token(web):
    async with web.api_client().websocket("/ws") as socket:
        assert (await web.api_client().request("/pty/spawn", {}, method="POST")).status == 200
        created = await socket.receive_json()
    assert (created["type"], created["event"]) == ("terminal", "created")


async def test_paths_of_the_pool_need_an_access(web):
    stranger = web.stranger()
    assert (await stranger.request("/pty/spawn", {})).status == 401
    with pytest.raises(RefusedError) as refused:
        async with stranger.websocket("/ws"):
            pass
    assert refused.value.status == 401


@pytest.mark.costly
@pytest.mark.parametrize("body", [{"cwd": "/nowhere"}, {"command": "ls"}, []])
async def test_spawn_of_what_cannot_be_says_why(web, body):
    reply = await (await web.browser()).request("/pty/spawn", body)
    assert reply.status == 400
    assert list(reply.json()) == ["error"]


async def test_spawn_with_a_body_that_is_too_large_is_refused(web):
    reply = await (await web.browser()).request("/pty/spawn", {"command": ["x" * 5_000_000]})
    assert reply.status == 400


async def test_pool_socket_is_closed_when_the_browser_logs_out(web):
    browser = await web.browser()
    async with browser.websocket("/ws") as socket:
        assert (await browser.request("/logout", {})).status == 204
        assert await socket.wait_closed() == 1008


async def test_pool_socket_lives_on_after_messages_that_are_not_valid(web):
    async with web.api_client().websocket("/ws") as socket:
        for text in ("", "{", "[]", '{"type":"pty:attach","id":"none"}', "x" * 1_000_000):
            await socket.send_frame(text)
            assert (await socket.receive_json())["type"] == "pty:error"


@pytest.mark.long
async def test_client_that_stops_reading_is_disconnected_or_brought_up_to_date(tmp_path):
    async with (
        web_daemon(tmp_path) as web,
        web.api_client().websocket("/ws") as socket,
        user_at(web.daemon.user_path) as user,
    ):
        script = "stty -echo; read x; yes 0123456789 | head -c 30000000; echo the end; read x"
        params = {"command": "sh", "args": ["-c", script], "name": "flood"}
        await user.request("terminal/create", params)
        await socket.send_json({"type": "pty:attach", "id": "flood"})
        await until(socket, lambda m: m["type"] == "pty:attached")
        before = (await user.request("status"))["rssBytes"]
        await user.terminal_request("write", "flood", data="\n")

        with trio.fail_after(30):
            while (await user.terminal_request("get", "flood"))["position"] < 30_000_000:
                await trio.sleep(0.02)
        after = (await user.request("status"))["rssBytes"]
        received, history = 0, ""
        while "the end" not in history:
            message = await until(socket, lambda m: m["type"].startswith("pty:"))
            received += len(json.dumps(message))
            history = message.get("history", "") or message["data"]
        # The buffers of both sockets are the system's.
        assert received < 15_000_000
        assert after - before < 20_000_000


@pytest.mark.long
async def test_client_attaches_again_when_the_worker_was_killed(tmp_path):
    async with web_daemon(tmp_path) as web:
        client = web.api_client()
        body = {"command": ["sh", "-c", "echo before; read -r x; echo got:$x; read x"]}
        async with client.websocket("/ws") as socket:
            await client.request("/pty/spawn", body)
            await until(socket, lambda m: "before" in m.get("output", ""))
            await web.daemon.kill_worker()
            await socket.wait_closed()
        # The listening socket is the keeper's: this waits for the next worker.
        async with client.websocket("/ws") as socket:
            created = await until(socket, lambda m: m.get("event") == "created")
            await socket.send_json({"type": "pty:attach", "id": "pty-1"})
            attached = await until(socket, lambda m: m["type"] == "pty:attached")
            await socket.send_json({"type": "pty:input", "id": "pty-1", "data": "one\n"})
            await until(socket, lambda m: "got:one" in m.get("output", ""))
    assert created["terminal"]["id"] == "pty-1"
    assert attached["history"] == "before\r\n"
