"""Sessions: isolation, retention by tool calls, and cancelled turns."""

import json
import sys

import pytest
import trio

from acpterm.acp.session import CancelNotification
from acpterm.host.agent import connection as callers
from acpterm.host.agent import session_methods
from acpterm.host.sessions.session import _RELEASED_MAX
from acpterm.host.sessions.tool_calls import CALLS_MAX, TERMINALS_MAX
from acpterm.jsonrpc import RpcError
from tests.support.agent import agent_at, agent_of
from tests.support.cases import each_case
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.keepers import SlowKeeper
from tests.support.polling import poll
from tests.support.processes import alive

NAMING_A_TERMINAL = {
    "terminal/output": {},
    "terminal/wait_for_exit": {},
    "terminal/kill": {},
    "terminal/release": {},
    "_acpterm/terminal/read": {"waitMs": 60_000},
    "_acpterm/terminal/write": {"data": "x\n"},
    "_acpterm/terminal/resize": {"cols": 3, "rows": 3},
    "_acpterm/terminal/signal": {"signal": "SIGKILL"},
}
NEVER_WAS = "term_0123456789abcdef0123456789abcdef"


async def answer_to(agent, session: str, terminal: str, method: str) -> tuple[int, str]:
    """Request a terminal that the session does not have; return the error's code and message.

    Both ids of the request are replaced in the message, so that messages can be compared.
    """
    params = {"sessionId": session, "terminalId": terminal, **NAMING_A_TERMINAL[method]}
    with pytest.raises(RpcError) as caught:
        await agent.request(method, params)
    message = caught.value.message
    assert repr(terminal) in message
    assert repr(session) in message
    return caught.value.code, message.replace(terminal, "ID").replace(session, "SESSION")


async def is_untouched(agent, terminal: str) -> bool:
    """Return whether a `read line` still runs, unresized and without input."""
    await agent.type(terminal, "mine\n")
    assert (await agent.wait(terminal))["exitCode"] == 0
    return (await agent.output(terminal))["output"] == "mine\ngot mine 40 200\n"


WAITS = "read line; echo got $line $(stty size)"

# Isolation


@pytest.mark.costly
@pytest.mark.parametrize("method", NAMING_A_TERMINAL)
async def test_terminal_of_another_session_does_not_exist(agent, method):
    terminal = await agent.create(WAITS)
    await agent.create("sleep 60", sessionId="session-2")
    never = await answer_to(agent, "session-2", NEVER_WAS, method)
    assert never[0] == -32002
    assert await answer_to(agent, "session-2", terminal, method) == never
    # An unknown session gets the same error.
    assert await answer_to(agent, "session-3", terminal, method) == never
    assert await is_untouched(agent, terminal)


@pytest.mark.costly
@pytest.mark.parametrize("method", NAMING_A_TERMINAL)
async def test_terminal_of_another_connection_does_not_exist(host, method):
    async with agent_of(host) as owner, agent_of(host) as other:
        terminal = await owner.create(WAITS)
        await other.create("sleep 60")
        assert owner.session == other.session
        never = await answer_to(other, other.session, NEVER_WAS, method)
        assert never[0] == -32002
        assert await answer_to(other, owner.session, terminal, method) == never
        assert await is_untouched(owner, terminal)


@pytest.mark.long
async def test_terminal_of_another_connection_does_not_exist_at_a_daemon(tmp_path):
    async with (
        daemon(tmp_path) as (_, path),
        agent_at(path) as owner,
        agent_at(path) as other,
    ):
        terminal = await owner.create(WAITS)
        for method in NAMING_A_TERMINAL:
            never = await answer_to(other, "session-1", NEVER_WAS, method)
            assert await answer_to(other, "session-1", terminal, method) == never
        assert await is_untouched(owner, terminal)


async def test_terminal_released_by_another_session_does_not_exist(host):
    async with agent_of(host) as owner, agent_of(host) as other:
        terminal = await owner.create("true")
        await owner.release(terminal)
        for agent, session in ((other, "session-1"), (owner, "session-2")):
            for method in NAMING_A_TERMINAL:
                never = await answer_to(agent, session, NEVER_WAS, method)
                assert await answer_to(agent, session, terminal, method) == never


async def test_tool_call_with_another_sessions_terminal_reveals_nothing(host):
    async with agent_of(host) as owner, agent_of(host) as other:
        terminal = await owner.create(WAITS)
        await other.notify("session/update", tool_call(terminal))
        never = await answer_to(other, "session-1", NEVER_WAS, "terminal/output")
        assert await answer_to(other, "session-1", terminal, "terminal/output") == never
        assert await is_untouched(owner, terminal)
        await owner.release(terminal)
        assert host.terminals.registry.get(terminal) is None


@pytest.mark.long
async def test_ids_are_long_random_and_unique(host):
    async with agent_of(host) as one, agent_of(host) as two:
        ids = []
        for _ in range(20):
            for agent in (one, two):
                ids.append(await agent.create("true"))
                await agent.release(ids[-1])
        assert len(set(ids)) == 40
        assert {len(id_) for id_ in ids} == {len(NEVER_WAS)}
        bits = [int(id_.removeprefix("term_"), 16) for id_ in ids]
        # Each of the 128 bits takes both values.
        for bit in range(128):
            assert len({value >> bit & 1 for value in bits}) == 2


# Released


async def test_released_id_is_distinguished_from_an_unknown_one(agent):
    terminal = await agent.create("sleep 60")
    await agent.release(terminal)
    assert await agent.release(terminal) == {}
    for method, params in NAMING_A_TERMINAL.items():
        if method == "terminal/release":
            continue
        with pytest.raises(RpcError, match=f"'{terminal}' has been released") as caught:
            await agent.request(method, agent.of(terminal, **params))
        assert caught.value.code == -32002


async def test_number_of_remembered_released_ids_is_limited(host, agent):
    first = await agent.create("true")
    await agent.release(first)
    (session,) = (c._context.sessions["session-1"] for c in host._connections)
    for number in range(_RELEASED_MAX):
        session._released[f"term_{number}"] = None
    last = await agent.create("true")
    await agent.release(last)
    assert len(session._released) == _RELEASED_MAX
    assert await agent.release(last) == {}
    with pytest.raises(RpcError, match="there is no terminal"):
        await agent.release(first)


# Tool calls and retained terminals


def tool_call(*terminals, call="call-1", session="session-1", update="tool_call", **more):
    """Return the params of a `session/update` that shows terminals."""
    content = [{"type": "terminal", "terminalId": terminal} for terminal in terminals]
    body = {"sessionUpdate": update, "toolCallId": call, "title": "Run", "content": content}
    return {"sessionId": session, "update": body | more}


async def retained_text(host, agent, *updates, command="printf precious") -> str | None:
    """Show a terminal with updates, release it; return its text for the user, if retained."""
    terminal = await agent.create(command)
    await agent.wait(terminal)
    for update in updates:
        await agent.notify("session/update", update(terminal))
    await agent.release(terminal)
    entry = host.terminals.registry.get(terminal)
    return None if entry is None else entry.terminal.text.text()


@pytest.mark.parametrize("update", ["tool_call", "tool_call_update"])
async def test_terminal_in_a_tool_call_is_retained_after_release(host, agent, update):
    assert await retained_text(host, agent, lambda t: tool_call(t, update=update)) == "precious"
    assert await retained_text(host, agent) is None
    assert len(host.terminals.registry) == 1


async def test_retained_terminal_is_unknown_to_its_agent(host, agent):
    terminal = await agent.create("printf precious")
    await agent.notify("session/update", tool_call(terminal))
    await agent.release(terminal)
    assert host.terminals.registry.get(terminal) is not None
    with pytest.raises(RpcError, match="has been released"):
        await agent.output(terminal)


async def test_retained_terminal_is_ended_and_keeps_its_output(host, agent):
    terminal = await agent.create("trap 'echo bye; exit' TERM; echo $$; read line")
    pid = int(await agent.until_output(terminal, "\n"))
    await agent.notify("session/update", tool_call(terminal))
    await agent.release(terminal)
    await poll(lambda: not alive(pid))
    entry = host.terminals.registry.get(terminal)
    await entry.terminal.wait_closed()
    assert entry.terminal.text.text() == f"{pid}\nbye\n"
    assert terminal not in host.terminals.pool.terminals


async def test_retained_terminal_drops_its_text_view(host, agent):
    terminal = await agent.create("head -c 500000 /dev/zero | tr '\\0' x")
    await agent.notify("session/update", tool_call(terminal))
    await agent.wait(terminal)
    assert len((await agent.output(terminal))["output"]) == 500_000
    held = host.terminals.pool.terminals[terminal].text.text()
    before = sys.getrefcount(held)
    await agent.release(terminal)
    assert sys.getrefcount(held) < before
    assert host.terminals.registry.get(terminal).terminal.text.text() == held


async def test_retained_terminal_outlives_its_connection(host):
    async with agent_of(host) as agent:
        terminal = await agent.create("printf precious; sleep 60")
        await agent.until_output(terminal, "precious")
        await agent.notify("session/update", tool_call(terminal))
        await agent.request("initialize", {"protocolVersion": 1})
    await poll(lambda: host.terminals.registry.get(terminal).released_at)
    assert host.terminals.registry.get(terminal).terminal.text.text() == "precious"
    await poll(lambda: not host.terminals.pool.terminals)


@each_case(
    ("updates", "stays"),
    [
        ([lambda t: tool_call(t, "other", update="tool_call_update")], True),
        ([tool_call, lambda _: tool_call("other")], False),
        ([tool_call, lambda _: tool_call()], False),
        ([tool_call, lambda _: tool_call(update="tool_call_update")], False),
        (
            [tool_call, lambda _: tool_call(content=None, update="tool_call_update")],
            False,
        ),
        ([tool_call, lambda _: without_content("tool_call_update")], True),
        ([tool_call, lambda _: tool_call("other", call="call-2")], True),
        ([lambda t: tool_call(t, session="session-2")], False),
        ([lambda t: tool_call(content=[7, {"type": "terminal", "terminalId": t}, {}])], True),
        ([lambda t: tool_call(content={"type": "terminal", "terminalId": t})], False),
        ([lambda t: tool_call(t, status=7, kind="unheard of", locations="x")], True),
        ([lambda t: tool_call(t, update="plan")], False),
    ],
)
async def test_new_content_replaces_the_terminals_of_a_tool_call(host, agent, updates, stays):
    assert await retained_text(host, agent, *updates) == ("precious" if stays else None)


def without_content(update):
    params = tool_call(update=update)
    del params["update"]["content"]
    return params


async def test_oldest_retained_terminals_are_forgotten_first_by_number():
    async with host_here(keep_released=2) as host, agent_of(host) as agent:
        ids = []
        for number in range(4):
            ids.append(await agent.create(f"printf {number}"))
            await agent.wait(ids[-1])
            await agent.notify("session/update", tool_call(ids[-1], call=f"call-{number}"))
            await agent.release(ids[-1])
        entries = [host.terminals.registry.get(id_) for id_ in ids]
        assert [item and item.terminal.text.text() for item in entries] == [None, None, "2", "3"]


async def test_oldest_retained_terminals_are_forgotten_first_by_size():
    async with host_here(keep_released_bytes=250_000) as host, agent_of(host) as agent:
        ids = []
        for number in range(3):
            ids.append(await agent.create(f"head -c 50000 /dev/zero | tr '\\0' {number}"))
            await agent.wait(ids[-1])
            await agent.notify("session/update", tool_call(ids[-1], call=f"call-{number}"))
            await agent.release(ids[-1])
        assert [host.terminals.registry.get(id_) is not None for id_ in ids] == [False, True, True]


async def test_no_terminal_is_retained_when_the_limit_is_zero():
    async with host_here(keep_released=0) as host, agent_of(host) as agent:
        assert await retained_text(host, agent, tool_call) is None


async def test_number_of_retained_tool_calls_is_limited(host, agent):
    terminal = await agent.create("true")
    await agent.notify("session/update", tool_call(terminal, call="oldest"))
    lines = [
        json.dumps(
            {
                "jsonrpc": "2.0",
                "method": "session/update",
                "params": tool_call("other", call=f"call-{number}"),
            }
        )
        for number in range(CALLS_MAX)
    ]
    await agent.send("\n".join([*lines, ""]).encode())
    await agent.release(terminal)
    assert host.terminals.registry.get(terminal) is None


async def test_number_of_terminals_per_tool_call_is_limited(host, agent):
    others = ["other"] * (TERMINALS_MAX - 1)
    assert await retained_text(host, agent, lambda t: tool_call(*others, t)) == "precious"
    assert await retained_text(host, agent, lambda t: tool_call(*others, "one more", t)) is None


async def test_oldest_session_is_forgotten_beyond_the_maximum(monkeypatch):
    monkeypatch.setattr(callers, "SESSIONS_MAX", 3)
    async with host_here() as host, agent_of(host) as agent:
        for number in range(3):
            agent.session = f"session-{number}"
            terminal = await agent.create("sleep 60")
            if number == 1:
                await agent.release(terminal)
        (connection,) = host._connections
        sessions = connection._context.sessions
        agent.session = "session-3"
        await agent.create("sleep 60")
        assert list(sessions) == ["session-0", "session-2", "session-3"]
        agent.session = "session-4"
        with pytest.raises(RpcError, match="3 sessions of this connection have terminals"):
            await agent.create("sleep 60")
        agent.session = "session-3"
        await agent.create("sleep 60")
        assert len(host.terminals.pool.terminals) == 4


async def test_session_is_not_forgotten_while_a_terminal_is_being_created(monkeypatch):
    monkeypatch.setattr(callers, "SESSIONS_MAX", 2)
    async with host_here() as host, agent_of(host) as agent:
        await agent.notify("session/update", tool_call("shown"))
        host.terminals.pool._keeper = slow = SlowKeeper(host.terminals.pool._keeper)
        created = await agent.start(
            "terminal/create", {"sessionId": agent.session, "command": "sleep 60"}
        )
        with trio.fail_after(DEADLINE_S):
            await slow.requested.wait()
        for number in range(3):
            cwd = {"sessionId": f"other-{number}", "cwd": "/"}
            await agent.request("_acpterm/session/set", cwd)
        slow.may_respond.set()
        await agent.result(created)
        (connection,) = host._connections
        sessions = connection._context.sessions
        assert list(sessions) == [agent.session, "other-2"]
        assert not sessions[agent.session].closed.is_set()
        assert len(sessions[agent.session].tool_calls) == 1


@pytest.mark.parametrize("command", ["true", "\0"])
async def test_session_is_forgotten_again_once_no_terminal_is_being_created(monkeypatch, command):
    monkeypatch.setattr(callers, "SESSIONS_MAX", 1)
    async with host_here() as host, agent_of(host) as agent:
        try:
            await agent.run(command)
        except RpcError:
            assert command == "\0"
        await agent.request("_acpterm/session/set", {"sessionId": "other", "cwd": "/"})
        (connection,) = host._connections
        assert list(connection._context.sessions) == ["other"]


async def test_session_without_state_is_not_retained(host, agent):
    for number in range(50):
        session = f"session-{number}"
        with pytest.raises(RpcError):
            await agent.request("terminal/output", {"sessionId": session, "terminalId": "x"})
        await agent.notify("session/cancel", {"sessionId": session})
    await agent.request("initialize", {"protocolVersion": 1})
    (connection,) = host._connections
    assert connection._context.sessions == {}


async def test_request_in_an_unknown_session_stores_nothing(host, agent, monkeypatch):
    await agent.initialize()
    stored = []
    monkeypatch.setattr(host.keeper, "put", lambda key, *_: stored.append(key))
    for method, params in NAMING_A_TERMINAL.items():
        with pytest.raises(RpcError, match="there is no terminal"):
            await agent.request(method, agent.of(NEVER_WAS, **params))
    assert stored == []


# A cancelled turn


@pytest.mark.long
async def test_cancelled_turn_kills_its_terminals_and_then_releases_them(agent):
    agent.session = "other"
    other = await agent.create(WAITS)
    agent.session = "session-1"
    running = await agent.create("echo $$; exec sleep 60")
    pid = int(await agent.until_output(running, "\n"))
    done = await agent.create("echo done")
    await agent.wait(done)
    wait = await agent.start("terminal/wait_for_exit", agent.of(running))
    await agent.notify("session/cancel", {"sessionId": "session-1"})
    status = await agent.result(wait)
    assert status["signal"] == "SIGTERM"
    assert status["_meta"]["acpterm"]["endedBy"] == "agent"
    assert not alive(pid)
    # The agent gets time to read and release them itself.
    assert (await agent.output(done))["output"] == "done\n"
    assert (await agent.output(running))["output"] == f"{pid}\n"
    await agent.release(done)
    assert await agent.release(done) == {}
    later = await agent.create("read line")
    await released(agent, running)
    assert "exitStatus" not in await agent.output(later), "the next turn's is left alone"
    agent.session = "other"
    assert await is_untouched(agent, other)


@pytest.mark.costly
@pytest.mark.parametrize("known", [False, True])
async def test_requested_terminal_is_not_created_after_a_cancelled_turn(host, agent, known):
    if known:
        await agent.run("true")
    params = {"sessionId": "session-1", "command": "sleep 60"}
    cancel = {
        "jsonrpc": "2.0",
        "method": "session/cancel",
        "params": {"sessionId": "session-1"},
    }
    created, one = agent.prepare("terminal/create", params)
    after, another = agent.prepare("terminal/create", params)
    # In one write, so that the cancel arrives before the terminal exists.
    await agent.send(one + json.dumps(cancel).encode() + b"\n" + another)
    with pytest.raises(RpcError, match="cancelled with the turn") as caught:
        await agent.result(created)
    assert caught.value.code == -32800
    # Only the next turn's terminal is left.
    terminal = (await agent.result(after))["terminalId"]
    assert "exitStatus" not in await agent.output(terminal)
    await poll(lambda: [running.id for running in host.terminals.pool._running] == [terminal])


async def test_terminal_being_created_is_released_with_the_cancelled_turn(host, agent):
    host.terminals.pool._keeper = slow = SlowKeeper(host.terminals.pool._keeper)
    params = {"sessionId": "session-1", "command": "sleep 60"}
    created = await agent.start("terminal/create", params)
    with trio.fail_after(DEADLINE_S):
        await slow.requested.wait()
    (connection,) = host._connections
    session = CancelNotification(session_id="session-1")
    session_methods.cancel(connection._context, session)
    slow.may_respond.set()
    with pytest.raises(RpcError, match="cancelled with the turn"):
        await agent.result(created)
    await poll(lambda: not host.terminals.pool._running)
    assert not host.terminals.pool.terminals


async def test_cancel_of_an_idle_turn_starts_no_task(host, agent):
    await agent.run("true")
    await cancel_turn(agent)
    assert not host.terminals._nursery.child_tasks


@pytest.mark.long
async def test_repeated_cancel_of_a_turn_starts_one_task():
    async with host_here(kill_grace=60) as host, agent_of(host) as agent:
        terminal = await agent.create("trap '' TERM; echo ready; while :; do sleep 0.1; done")
        await agent.until_output(terminal, "ready")
        for _ in range(5):
            await cancel_turn(agent)
        assert len(host.terminals._nursery.child_tasks) == 1


async def test_release_after_a_cancelled_turn_survives_a_resumption(monkeypatch):
    monkeypatch.setattr(session_methods, "RELEASE_AFTER_CANCEL_S", 0.5)
    async with host_here() as host, agent_of(host) as old, agent_of(host) as agent:
        secret = (await old.initialize())["resume"]
        terminal = await old.create("sleep 60")
        await cancel_turn(old)
        assert (await agent.initialize(secret))["resumed"] is True
        await released(agent, terminal)


async def cancel_turn(agent):
    """Cancel the turn, and wait until the host has handled that."""
    await agent.notify("session/cancel", {"sessionId": agent.session})
    await agent.initialize()


async def released(agent, terminal):
    """Wait until a terminal has been released by the host."""
    with trio.fail_after(DEADLINE_S):
        while True:
            try:
                await agent.output(terminal)
            except RpcError as error:
                assert "has been released" in error.message  # noqa: PT017
                return
            await trio.sleep(0.02)
