"""The events about terminals on the WebSocket of a PTY pool, and `/pty/spawn`."""

import pytest

from acpterm.host import events
from acpterm.jsonrpc import RpcError
from acpterm.terminal.status import EndedBy
from acpterm.web.pool.handlers import spawn
from acpterm.web.pool.websocket import PART_BYTES
from tests.support.agent import agent_of
from tests.support.hosts import host_here
from tests.support.pool_client import pool_client
from tests.support.user import UserTerminals, user_of


def names(messages):
    return [message["event"] for message in messages if message["type"] == "terminal"]


async def spawn_on(host, body):
    with host.local_user() as user:
        return await spawn(user, body)


async def test_terminal_of_an_agent_is_created_promoted_and_closed():
    async with host_here() as host, pool_client(host) as pool, agent_of(host) as agent:
        terminal = await agent.create("tail", args=["-f", "/dev/null", "a b"], cwd="/")
        created = await pool.until_event("created")
        host.terminals.registry.promote(host.terminals.registry.find(terminal))
        promoted = await pool.until_event("promoted")
        host.terminals.registry.kill(host.terminals.registry.find(terminal), EndedBy.USER)
        closed = await pool.until_event("closed")
    record = created["terminal"]
    assert created == {
        "type": "terminal",
        "event": "created",
        "terminal": {
            "id": terminal,
            "cwd": "/",
            "owner": "agent",
            "visible": False,
            "createdAt": record["createdAt"],
            "command": ["tail", "-f", "/dev/null", "a b"],
        },
    }
    assert list(record) == ["id", "cwd", "owner", "visible", "createdAt", "command"]
    users = {**record, "owner": "user", "visible": True}
    assert promoted == {"type": "terminal", "event": "promoted", "terminal": users}
    assert closed == {"type": "terminal", "event": "closed", "terminal": users}


async def test_events_of_a_short_program_have_its_output_before_the_end():
    async with host_here() as host, pool_client(host) as pool, user_of(host) as user:
        params = {"command": "echo hello", "name": "pty-1"}
        await user.request("terminal/create", params)
        closed = await pool.until_event("closed")
    created, *outputs = pool.skipped
    assert created["event"] == "created"
    # Its line end may come in another part.
    assert "".join(one["output"] for one in outputs) == "hello\r\n"
    for one in outputs:
        assert one == {**created, "event": "output", "output": one["output"]}
    assert closed == {**created, "event": "closed"}
    assert "command" not in created["terminal"]


async def test_output_of_a_terminal_is_sent_in_parts():
    async with host_here() as host, pool_client(host) as pool, user_of(host) as user:
        script = "stty -echo; while read -r x; do echo got:$x; done"
        terminal = await UserTerminals(user).create(script)
        for word in ("one", "two", "three"):
            await user.terminal_request("write", terminal, data=f"{word}\n")
            await pool.until(lambda m, word=word: f"got:{word}" in m.get("output", ""))


@pytest.mark.long
async def test_much_output_is_sent_as_its_end():
    async with host_here() as host, pool_client(host) as pool, user_of(host) as user:
        script = "i=10000; while [ $i -lt 30000 ]; do echo $i; i=$((i+1)); done"
        terminal = await UserTerminals(user).create(f"stty -echo; echo ready; read x; {script}")
        await pool.until(lambda message: message.get("output", "").endswith("\n"))
        pool.skipped.clear()
        await user.terminal_request("write", terminal, data="\n")
        await user.terminal_request("wait", terminal)
        await pool.until_event("closed")
    parts = [m["output"] for m in pool.skipped if m["event"] == "output"]
    whole = "".join(f"{i}\r\n" for i in range(10000, 30000))
    end = 0
    for part in parts:
        assert len(part) <= PART_BYTES
        begin = whole.index(part, end)
        # If output before it was left out, a part begins with a whole line.
        assert begin == end or whole[begin - 2 : begin] == "\r\n"
        end = begin + len(part)
    assert end == len(whole)


async def test_terminals_that_run_already_are_created_for_a_client_that_connects():
    async with host_here() as host, user_of(host) as user:
        terminals = UserTerminals(user)
        first = await terminals.create("echo old; read x")
        second = await terminals.create("read x")
        await user.terminal_request("wait", await terminals.create("true"))
        await terminals.until_output(first, "old\n")
        async with pool_client(host) as pool:
            created = [await pool.next(), await pool.next()]
            await user.terminal_request("write", first, data="\n")
            await pool.until_event("closed")
    assert [message["terminal"]["id"] for message in created] == [first, second]
    assert "".join(m.get("output", "") for m in pool.skipped) == "\r\n"


async def test_released_terminal_is_closed_once():
    async with host_here() as host, pool_client(host) as pool, agent_of(host) as agent:
        terminal = await agent.create("sleep 60")
        await agent.release(terminal)
        await agent.release(await agent.create("true"))
        found = [(await pool.until_event("closed"))["terminal"]["id"] for _ in range(2)]
    assert found[0] == terminal
    assert names(pool.skipped).count("created") == 2


async def test_terminal_keeps_its_id_on_a_socket_when_it_is_renamed():
    async with host_here() as host, user_of(host) as user, pool_client(host) as pool:
        script = "stty -echo; while read -r x; do echo got:$x; done"
        first = await UserTerminals(user).create(script, name="web")
        assert (await pool.until_event("created"))["terminal"]["id"] == "web"
        await user.terminal_request("rename", first, name="old")
        second = await UserTerminals(user).create("read x", name="web")
        # The name is the other terminal's now; what the client types must not reach that one.
        assert (await pool.until_event("created"))["terminal"]["id"] == second
        await pool.send("pty:input", "web", data="one\n")
        output = await pool.until(lambda message: "got:one" in message.get("output", ""))
    assert output["terminal"]["id"] == "web"


async def test_client_that_missed_events_is_sent_what_has_changed(monkeypatch):
    monkeypatch.setattr(events, "QUEUE_MAX", 2)
    async with host_here() as host, user_of(host) as user, agent_of(host) as agent:
        terminals = UserTerminals(user)
        async with pool_client(host) as pool:
            running = await terminals.create("read x")
            ended = await terminals.create("read x")
            agents = await agent.create("read x")
            for _ in range(3):
                await pool.until_event("created")
            # From here on the client reads nothing. The first event is on its way already.
            await terminals.create("read x")
            await user.terminal_request("promote", agents)
            await user.terminal_request("kill", ended)
            missed = await terminals.create("read x")
            for _ in range(4):
                await user.terminal_request("wait", await terminals.create("true"))
            last = await terminals.create("read x")
            seen = {}
            while last not in seen:
                message = await pool.until(
                    lambda m: m.get("event") in ("created", "promoted", "closed")
                )
                seen[message["terminal"]["id"]] = message["event"]
    assert seen[agents] == "promoted"
    assert seen[ended] == "closed"
    assert seen[missed] == "created"
    assert running not in seen


async def test_spawn_creates_a_terminal_of_the_user(tmp_path):
    async with host_here() as host, pool_client(host) as pool:
        body = (
            b'{"command": ["sh", "-c", "echo $0; pwd; stty size", "a b"], "cols": 100, "rows": 30'
        )
        spawned = await spawn_on(host, body + b', "cwd": "%s"}' % bytes(tmp_path))
        created = await pool.until_event("created")
        assert await pool.attach("pty-1") is not None
        await pool.until_type("pty:exit")
        history = await pool.attach("pty-1")
    assert created["terminal"] == {
        "id": "pty-1",
        "cwd": str(tmp_path),
        "owner": "user",
        "visible": True,
        "createdAt": spawned.createdAt,
    }
    assert spawned.id == "pty-1"
    assert history == f"a b\r\n{tmp_path}\r\n30 100\r\n"


async def test_spawn_without_a_command_runs_the_shell_of_the_user(monkeypatch):
    monkeypatch.setenv("SHELL", "/bin/sh")
    async with host_here() as host, pool_client(host) as pool:
        first = await spawn_on(host, b"")
        second = await spawn_on(host, b"{}")
        assert (first.id, second.id) == ("pty-1", "pty-2")
        await pool.attach("pty-2")
        await pool.send("pty:input", "pty-2", data="echo $((6*7))\n")
        await pool.until_data("42\r\n")


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (b"{", "the request is {"),
        (b"[]", "the request is []"),
        (b'{"command": "ls"}', 'the request.command is "ls"'),
        (b'{"cwd": 1}', "the request.cwd is 1"),
        (b'{"cwd": "/nowhere"}', "/nowhere"),
        (b'{"cwd": "relative"}', "relative"),
        (b'{"cols": 1000000}', "the request.cols is 1000000"),
        (b'{"rows": 0}', "the request.rows is 0"),
        (b'{"command": ["\\u0000"]}', "\\x00"),
    ],
)
async def test_spawn_of_what_cannot_be_is_refused(body, error):
    async with host_here() as host:
        with pytest.raises(RpcError) as raised:
            await spawn_on(host, body)
        assert error in raised.value.message
        assert len(host.terminals.registry) == 0
