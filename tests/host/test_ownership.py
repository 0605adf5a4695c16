"""Ownership of terminals: the agent's, or the user's; and who may do what."""

import os
import signal
import sys
import time

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_at, agent_of
from tests.support.cases import each_case
from tests.support.daemon import daemon, user_socket
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.user import user_at, user_of

WAITS = "echo $$; exec sleep 60"


async def pid_in(agent, terminal):
    return int(await agent.until_output(terminal, "\n"))


async def embed(agent, terminal, call="c"):
    """Show the terminal in a tool call."""
    content = [{"type": "terminal", "terminalId": terminal}]
    update = {"sessionUpdate": "tool_call", "toolCallId": call, "title": "t", "content": content}
    await agent.notify("session/update", {"sessionId": agent.session, "update": update})


async def test_terminal_is_the_agents_until_it_is_taken_over(agent, user):
    terminal = await agent.create(WAITS)
    before = await user.terminal_request("get", terminal)
    assert before["owner"] == "agent"
    after = await user.terminal_request("promote", terminal)
    assert after["owner"] == "user"
    # A repetition changes nothing, and it cannot be undone.
    assert (await user.terminal_request("promote", terminal))["owner"] == "user"


async def test_users_terminal_is_the_users_and_visible(user):
    created = await user.request("terminal/create", {"command": WAITS})
    assert (created["owner"], created["agent"]) == ("user", None)


async def test_agents_release_does_not_end_a_terminal_that_was_taken_over(agent, user):
    terminal = await agent.create(WAITS)
    pid = await pid_in(agent, terminal)
    await user.terminal_request("promote", terminal)
    assert await agent.release(terminal) == {}
    with pytest.raises(RpcError, match="has been released"):
        await agent.output(terminal)
    assert await agent.release(terminal) == {}
    assert (await user.terminal_request("get", terminal))["state"] == "running"
    assert alive(pid)
    await user.terminal_request("release", terminal)
    await poll(lambda: not alive(pid))


async def test_terminal_that_was_taken_over_outlives_agent_turn_and_lifetime(host, user):
    async with agent_of(host) as agent:
        terminal = await agent.create(WAITS, own={"timeoutMs": 1000})
        await user.terminal_request("promote", terminal)
        pid = await pid_in(agent, terminal)
        await agent.notify("session/cancel", {"sessionId": agent.session})
        # The lifetime of this one ends later than that of the other would.
        other = await agent.create(WAITS, own={"timeoutMs": 1000})
        await agent.wait(other)
    await user.until(lambda: True)
    await poll(lambda: not host.daemon.agents)
    info = await user.terminal_request("get", terminal)
    assert (info["state"], info["owner"]) == ("running", "user")
    assert alive(pid)
    await user.terminal_request("kill", terminal)
    await poll(lambda: not alive(pid))


async def test_released_terminal_cannot_be_taken_over(agent, user):
    terminal = await agent.create("echo precious")
    await agent.wait(terminal)
    await embed(agent, terminal)
    await agent.release(terminal)
    with pytest.raises(RpcError, match="nothing left to take over"):
        await user.terminal_request("promote", terminal)


async def test_user_can_end_an_agents_terminal_and_the_agent_sees_who_did(agent, user):
    terminal = await agent.create(WAITS)
    await user.terminal_request("kill", terminal)
    status = await agent.wait(terminal)
    assert status["_meta"]["acpterm"]["endedBy"] == "user"
    await user.terminal_request("release", terminal)
    with pytest.raises(RpcError, match="has been released"):
        await agent.output(terminal)
    assert await user.list(all=True) == []


async def test_embedded_terminal_stays_readable_for_the_user_after_release(agent, user):
    terminal = await agent.create("printf '\\033[31mprecious\\033[m'")
    await agent.wait(terminal)
    await embed(agent, terminal)
    await agent.release(terminal)
    assert await user.list() == []
    (retained,) = await user.list(all=True)
    assert (retained["state"], retained["toolCalls"]) == ("released", ["c"])
    assert (await user.terminal_request("read", terminal))["data"] == "precious"
    assert (await user.terminal_request("screen", terminal))["rows"][
        0
    ] == "\x1b[0;31mprecious\x1b[m"


async def test_retained_terminal_is_forgotten_when_it_is_too_old():
    async with host_here(keep_released_age=0.2) as host, user_of(host) as user:
        created = await user.request("terminal/create", {"command": "echo", "args": ["x"]})
        await user.terminal_request("wait", created["terminalId"])
        with trio.fail_after(DEADLINE_S):
            while await user.list(all=True):
                await trio.sleep(0.02)


@pytest.mark.parametrize("years", [-30, 30])
async def test_retained_terminal_does_not_age_when_the_clock_is_set(monkeypatch, years):
    async with host_here(keep_released_age=60) as host, user_of(host) as user:
        created = await user.request("terminal/create", {"command": "echo", "args": ["x"]})
        await user.terminal_request("wait", created["terminalId"])
        real = time.time
        monkeypatch.setattr(time, "time", lambda: real() + years * 365 * 86400)
        host.terminals.registry.expire()
        assert len(await user.list(all=True)) == 1


async def test_users_oldest_exited_terminals_are_forgotten_first():
    async with host_here(keep_released=2) as host, user_of(host) as user:
        for number in range(4):
            created = await user.request("terminal/create", {"command": f"printf {number}"})
            await user.terminal_request("wait", created["terminalId"])
        retained = [
            (await user.terminal_request("read", one["terminalId"]))["data"]
            for one in await user.list()
        ]
        assert retained == ["2", "3"]


# Names


async def test_terminal_is_found_by_id_prefix_name_or_last(agent, user):
    first = (await user.request("terminal/create", {"command": WAITS, "name": "web"}))["terminalId"]
    last = await agent.create(WAITS)
    for name, terminal in [
        (first, first),
        (first[:14], first),
        (first.removeprefix("term_")[:9], first),
        ("web", first),
        ("@last", last),
    ]:
        assert (await user.terminal_request("get", name))["terminalId"] == terminal


async def test_unknown_or_ambiguous_name_is_an_error(user):
    with pytest.raises(RpcError, match="there is no terminal yet"):
        await user.terminal_request("get", "@last")
    for _ in range(2):
        await user.request("terminal/create", {"command": WAITS})
    with pytest.raises(RpcError, match="2 terminals begin with 'term_'"):
        await user.terminal_request("get", "term_")
    for name in ("nothing", "", "@first"):
        with pytest.raises(RpcError, match="there is no terminal"):
            await user.terminal_request("get", name)


async def test_last_is_the_users_for_typing_and_attaching(agent, user):
    theirs = await agent.create(WAITS)
    typing = {"data": "x"}, {"token": "t", "cols": 80, "rows": 24}, {"own": True}
    methods = list(zip(("write", "attach", "get"), typing, strict=True))
    for method, params in methods:
        with pytest.raises(RpcError, match="none of the terminals is yours"):
            await user.terminal_request(method, "@last", **params)
    own = (await user.request("terminal/create", {"command": "read x; echo $x"}))["terminalId"]
    await agent.create(WAITS)
    assert (await user.terminal_request("get", "@last", own=True))["terminalId"] == own
    await user.terminal_request("write", "@last", data="mine\n")
    await user.terminal_request("wait", own)
    assert "mine" in (await user.terminal_request("read", own))["data"]
    assert await user.terminal_request("write", theirs, data="x") == {"written": 1}


async def test_name_of_a_terminal_of_the_user_does_not_mean_an_agents_for_typing(agent, user):
    create = {"command": "true", "name": "build"}
    own = (await user.request("terminal/create", create))["terminalId"]
    await user.terminal_request("wait", own)
    theirs = await agent.create("read x", own={"name": "build"})
    assert (await user.terminal_request("get", "build"))["terminalId"] == theirs
    for given in (False, True):
        if given:
            await agent.request("_acpterm/terminal/promote", agent.of(theirs))
        assert (await user.terminal_request("get", "build", own=True))["terminalId"] == own
        with pytest.raises(RpcError, match="has ended"):
            await user.terminal_request("write", "build", data="yes\n")
    await user.terminal_request("promote", theirs)
    assert (await user.terminal_request("get", "build", own=True))["terminalId"] == theirs


async def test_terminal_that_an_agent_gives_away_is_not_the_last_for_typing(agent, user):
    theirs = await agent.create("read x")
    await agent.request("_acpterm/terminal/promote", agent.of(theirs))
    with pytest.raises(RpcError, match="none of the terminals is yours"):
        await user.terminal_request("write", "@last", data="x")
    await user.terminal_request("promote", theirs)
    assert await user.terminal_request("write", "@last", data="x") == {"written": 1}


async def test_host_numbers_the_names_of_the_users_terminals(agent, user):
    await agent.create("true", own={"name": "num-#"})
    create = {"command": "true", "name": "num-#"}
    names = [(await user.request("terminal/create", create))["name"] for _ in range(2)]
    assert names == ["num-2", "num-3"]


@each_case("name", ["", "@last", "-x", "term_1", "a\nb", "\x1b[m"])
async def test_ambiguous_new_name_is_refused(user, name):
    with pytest.raises(RpcError, match="a name is not empty"):
        await user.request("terminal/create", {"command": "true", "name": name})


async def test_name_is_free_when_its_terminal_has_exited(user):
    create = {"command": "read x", "name": "web"}
    first = await user.request("terminal/create", create)
    with pytest.raises(RpcError, match="'web' runs"):
        await user.request("terminal/create", create)
    await user.terminal_request("kill", "web")
    await user.terminal_request("wait", "web")
    second = await user.request("terminal/create", create)
    assert first["terminalId"] != second["terminalId"]
    assert (await user.terminal_request("get", "web"))["terminalId"] == second["terminalId"]


# Admission

CONNECT = (
    "import socket, sys; s = socket.socket(socket.AF_UNIX); s.connect(sys.argv[1]); "
    's.sendall(b\'{"jsonrpc":"2.0","id":1,"method":"_acpterm/terminal/list","params":{}}\\n\'); '
    "print(s.recv(1 << 20).decode())"
)


@pytest.mark.costly
@pytest.mark.parametrize("tracking", ["auto", "subreaper"])
async def test_agents_terminal_cannot_use_the_users_socket(tmp_path, tracking):
    env = {**os.environ, "ACPTERM_TRACKING": tracking, "XDG_CONFIG_HOME": str(tmp_path)}
    async with daemon(tmp_path, env=env) as (_, path):
        user_path = user_socket(path)
        python = [sys.executable, "-S", "-c", CONNECT, user_path]
        async with agent_at(path) as agent, user_at(user_path) as user:
            output, _ = await agent.run(python[0], args=python[1:])
            assert "this is the user's endpoint" in output
            # Nor can a process that leaves the session and clears its environment.
            output, _ = await agent.run("env", args=["-i", "setsid", "-w", *python])
            assert "this is the user's endpoint" in output
            # A process in a terminal of the user's acts for the user.
            created = await user.request(
                "terminal/create", {"command": python[0], "args": python[1:], "cols": 1000}
            )
            await user.terminal_request("wait", created["terminalId"])
            assert (
                '"terminals":'
                in (await user.terminal_request("read", created["terminalId"]))["data"]
            )


async def test_users_program_that_connects_before_its_create_has_ended_is_admitted(
    tmp_path, monkeypatch
):
    has_origin = trio.Event()
    async with host_here() as host, user_of(host) as user, trio.open_nursery() as nursery:
        origin, spawn = host._trees.origin, host.keeper.spawn

        def find_origin(pid):
            has_origin.set()
            return origin(pid)

        async def spawn_slowly(*arguments, **options):
            terminal = await spawn(*arguments, **options)
            await has_origin.wait()
            return terminal

        monkeypatch.setattr(host._trees, "origin", find_origin)
        monkeypatch.setattr(host.keeper, "spawn", spawn_slowly)
        with trio.socket.socket(trio.socket.AF_UNIX) as sock:
            await sock.bind(path := str(tmp_path / "user.sock"))
            sock.listen()
            listener = trio.SocketListener(sock)
            nursery.start_soon(trio.serve_listeners, host.serve_user_socket, [listener])
            params = {"command": sys.executable, "args": ["-S", "-c", CONNECT, path], "cols": 1000}
            created = await user.request("terminal/create", params)
            await user.terminal_request("wait", created["terminalId"])
            text = (await user.terminal_request("read", created["terminalId"]))["data"]
            assert '"terminals":' in text
            nursery.cancel_scope.cancel()


async def test_agents_socket_has_no_user_methods(agent, user, tmp_path):
    terminal = (await user.request("terminal/create", {"command": WAITS}))["terminalId"]
    for method in ("terminal/attach", "terminal/kill", "session/list", "approval/list"):
        with pytest.raises(RpcError, match="there is no method"):
            await agent.request(f"_acpterm/{method}", {"terminalId": terminal})
    for method in ("get", "read", "screen", "promote", "signal"):
        params = agent.of(terminal, signal="SIGINT")
        with pytest.raises(RpcError, match="there is no terminal"):
            await agent.request(f"_acpterm/terminal/{method}", params)
    with pytest.raises(RpcError, match="there is no terminal"):
        await agent.output(terminal)


# Waiting for input


async def test_prompt_is_distinguished_from_a_slow_program(agent, user):
    asks = await agent.create("printf 'name? '; read x; exec sleep 60")
    works = await agent.create("printf working; exec sleep 60")
    with trio.fail_after(DEADLINE_S):
        while not (await agent.output(asks))["_meta"]["acpterm"]["waitingForInput"]:
            await trio.sleep(0.02)

    async def seen():
        return {one["terminalId"]: one["waitingForInput"] for one in await user.list()}

    with trio.fail_after(DEADLINE_S):
        while await seen() != {asks: True, works: False}:
            await trio.sleep(0.02)
    assert (await agent.output(works))["_meta"]["acpterm"]["waitingForInput"] is False
    await agent.type(asks, "me\n")
    with trio.fail_after(DEADLINE_S):
        while (await agent.output(asks))["_meta"]["acpterm"]["waitingForInput"]:
            await trio.sleep(0.02)


async def test_waiting_for_input_is_an_event(host, agent, user):
    _, token = await user.open("events")
    await poll(lambda: host.terminals.events.has_subscribers)
    terminal = await agent.create("printf 'name? '; read x; exec sleep 60")

    def event_names():
        events = [message["params"] for message in user.by_token[token]]
        return [e["event"] for e in events if (e["terminal"] or {}).get("terminalId") == terminal]

    await user.until(lambda: "waiting" in event_names())
    await agent.type(terminal, "me\n")
    await user.until(lambda: "resumed" in event_names())
    assert event_names() == ["created", "waiting", "resumed"]


async def test_stopped_program_is_told_to_agent_and_user_and_is_an_event(host, agent, user):
    _, token = await user.open("events")
    await poll(lambda: host.terminals.events.has_subscribers)
    terminal = await agent.create("timeout 100 sh -c 'printf name?; read x'; echo code $?")

    def events():
        events = [message["params"] for message in user.by_token[token]]
        return [e for e in events if (e["terminal"] or {}).get("terminalId") == terminal]

    await user.until(lambda: "stopped" in [event["event"] for event in events()])
    stopped = events()[-1]["terminal"]["stopped"]
    assert stopped == {
        "pid": stopped["pid"],
        "command": "sh",
        "why": "wants to read the terminal in the background",
        "hint": "use timeout --foreground",
    }
    own = {"waitingForInput": False, "stopped": stopped}
    read = await agent.read_from(terminal, since=5, untilInput=True, waitMs=60_000)
    assert {name: read[name] for name in own} == own
    assert (await agent.output(terminal))["_meta"]["acpterm"] == own
    (info,) = await user.list()
    assert (info["state"], info["stopped"]) == ("running", stopped)
    os.kill(stopped["pid"], signal.SIGKILL)
    assert (await agent.wait(terminal))["exitCode"] == 0
    assert "stopped" not in (await agent.output(terminal)).get("_meta", {})


# Retention


PRINTS = "printf {}; head -c 50000 /dev/zero | tr '\\0' x"


async def keep_of_user(user, text):
    created = await user.request("terminal/create", {"command": PRINTS.format(text)})
    await user.terminal_request("wait", created["terminalId"])
    return created["terminalId"]


async def keep_of_agent(agent, text):
    terminal = await agent.create(PRINTS.format(text))
    await agent.wait(terminal)
    await embed(agent, terminal, text)
    await agent.release(terminal)
    return terminal


@pytest.mark.costly
@pytest.mark.parametrize(
    "share", [{"keep_released": 2}, {"keep_released_bytes": 250_000}], ids=["number", "bytes"]
)
async def test_agents_retained_terminals_never_replace_the_users(share):
    async with host_here(**share) as host, agent_of(host) as agent, user_of(host) as user:
        own = [await keep_of_user(user, f"own{number}") for number in range(2)]
        theirs = [await keep_of_agent(agent, f"own{number}") for number in range(5)]
        retained = {one["terminalId"] for one in await user.list(all=True)}
        assert retained == {*own, *theirs[-2:]}
        # Nor the reverse.
        own.append(await keep_of_user(user, "new1"))
        retained = {one["terminalId"] for one in await user.list(all=True)}
        assert retained == {*own[-2:], *theirs[-2:]}


async def test_terminals_that_an_agent_promotes_never_replace_the_users():
    async with host_here(keep_released=2) as host, agent_of(host) as agent, user_of(host) as user:
        own = [await keep_of_user(user, f"own{number}") for number in range(2)]
        for number in range(4):
            terminal = await agent.create(f"printf {number}")
            await agent.request("_acpterm/terminal/promote", agent.of(terminal))
            await agent.wait(terminal)
        kept = {one["terminalId"]: one for one in await user.list(all=True)}
        assert kept.keys() >= set(own)
        assert kept[terminal]["promotedBy"] == "agent"
        assert "promotedBy" not in kept[own[0]]
        await user.request("terminal/promote", {"terminalId": terminal})
        kept = {one["terminalId"]: one for one in await user.list(all=True)}
        assert kept[terminal]["promotedBy"] == "user"


async def test_agent_that_takes_the_most_loses_its_oldest_first():
    async with (
        host_here(keep_released=3) as host,
        agent_of(host) as one,
        agent_of(host) as other,
        user_of(host) as user,
    ):
        first = await keep_of_agent(other, "first")
        many = [await keep_of_agent(one, f"many{number}") for number in range(5)]
        retained = {one["terminalId"] for one in await user.list(all=True)}
        assert retained == {first, *many[-2:]}


async def test_agents_recordings_never_replace_the_users(tmp_path):
    settings = {"record": True, "record_dir": str(tmp_path / "cast"), "record_files": 2}
    async with (
        host_here(**settings) as host,
        agent_of(host) as agent,
        user_of(host) as user,
    ):
        own = [await keep_of_user(user, f"own{number}") for number in range(2)]
        for number in range(5):
            await agent.run(f"printf {number}")
    retained = [path.name for path in (tmp_path / "cast").iterdir()]
    assert all(any(terminal in name for name in retained) for terminal in own)
    assert len(retained) <= 4


async def test_released_id_is_stored_before_the_terminal_is_forgotten(host, agent, monkeypatch):
    terminal = await agent.create("true")
    await agent.wait(terminal)
    sent = []
    keeper = host.keeper
    put, forget = keeper.put, keeper.forget
    monkeypatch.setattr(
        keeper,
        "put",
        lambda key, value, fds=(): (sent.append((key, value)), put(key, value, fds)),
    )
    monkeypatch.setattr(keeper, "forget", lambda name: (sent.append((name, b"")), forget(name)))
    await agent.release(terminal)
    session = next(
        i for i, (key, value) in enumerate(sent) if key[0] == "s" and terminal.encode() in value
    )
    assert session < next(i for i, (key, _) in enumerate(sent) if key == f"t/{terminal}")
    await poll(lambda: (terminal, b"") in sent)
    assert session < sent.index((terminal, b""))
