"""Memory of sessions is bounded: of each, of a connection's, and of a host's."""

import json
from contextlib import AsyncExitStack
from functools import cache

import pytest

from acpterm.host import memory
from acpterm.pty import linux
from tests.support.agent import agent_at, agent_of
from tests.support.daemon import daemon, user_socket
from tests.support.hosts import host_here
from tests.support.processes import environment
from tests.support.user import user_at

MIB = 1024 * 1024
MESSAGES = 12
NAME = "x" * 6_000_000


def update(session, **members):
    body = {"sessionUpdate": "tool_call_update", "toolCallId": "c", **members}
    return {"sessionId": session, "update": body}


def long_names(number):
    return update("s", **{f"{number}{NAME}": 1})


def long_names_in_meta(number):
    return update("s", _meta={f"{number}{NAME}": 1})


def many_names(number):
    return update("s", **{f"{number}-{n}": 1 for n in range(150_000)})


@cache
def line_of(kind):
    """Return a `session/update` of `kind` as a line, with @ in place of a number.

    It is cached: to encode every update would take most of the tests' time.
    """
    body = {"jsonrpc": "2.0", "method": "session/update", "params": kind("@")}
    return json.dumps(body).encode() + b"\n"


def line(kind, number):
    return line_of(kind).replace(b"@", b"%d" % number)


def many_terminals(number):
    terminals = [
        {"type": "terminal", "terminalId": f"{number}-{n}-".ljust(4096, "x")} for n in range(1000)
    ]
    return {**update("s", content=terminals, toolCallId=f"call-{number}")}


def long_commands(number):
    shown = {"sessionUpdate": "terminal_update", "terminalId": f"t{number}", "command": NAME}
    return {"sessionId": "s", "update": shown}


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


@pytest.mark.skipif(not linux.AVAILABLE, reason="memory in use is read from /proc")
@pytest.mark.parametrize(
    "kind", [long_names, long_names_in_meta, many_names, many_terminals, long_commands]
)
@pytest.mark.long
async def test_memory_after_large_updates_is_bounded(tmp_path, kind):
    env = environment(XDG_CONFIG_HOME=str(tmp_path))
    async with daemon(tmp_path, env=env) as (_, path):
        async with user_at(user_socket(path)) as user:
            status = await user.request("status")
        pids = status["keeperPid"], status["workerPid"]
        async with agent_at(path) as agent:
            # The memory that parsing one message needs does not count.
            await agent.send(line(kind, 0))
            await agent.run("true")
            before = sum(map(resident, pids))
            for number in range(1, MESSAGES + 1):
                await agent.send(line(kind, number))
            await agent.run("true")
            more = sum(map(resident, pids)) - before
            assert more < 30 * MIB, f"{more // MIB} MiB more"


def set_cwd(session):
    return "_acpterm/session/set", {"sessionId": session, "cwd": f"/{'é' * 4000}"}


def tell(session, size=8_000):
    return "session/update", update(session, rawOutput="x" * size)


@pytest.mark.parametrize("what", ["ids", "directories", "tool calls"])
@pytest.mark.long
async def test_oldest_sessions_of_a_connection_are_forgotten_first(monkeypatch, what):
    monkeypatch.setattr(memory, "CONNECTION_BYTES", MIB)
    async with host_here() as host, agent_of(host) as agent:
        terminal = await agent.create("sleep 60")
        for number in range(300):
            session = f"{number}".ljust(4096, "x") if what == "ids" else f"s{number}"
            method, params = tell(session) if what == "tool calls" else set_cwd(session)
            if "cwd" in params and what == "ids":
                params["cwd"] = "/"
            if method == "session/update":
                await agent.notify(method, params)
            else:
                await agent.request(method, params)
        await agent.request("_acpterm/session/set", {"sessionId": agent.session, "cwd": "/"})
        assert 0 < host.resumption.session_memory.total <= MIB
        # The session with the terminal is never forgotten.
        assert (await agent.output(terminal))["output"] == ""


@pytest.mark.long
async def test_tool_calls_of_a_session_with_a_terminal_are_forgotten(monkeypatch):
    monkeypatch.setattr(memory, "CONNECTION_BYTES", MIB)
    async with host_here() as host, agent_of(host) as agent:
        await agent.create("sleep 60")
        await agent.notify(*tell(agent.session))
        for number in range(100):
            await agent.create("sleep 60", sessionId=f"s{number}")
            for call in range(3):
                method, params = tell(f"s{number}")
                params["update"]["toolCallId"] = f"c{call}"
                await agent.notify(method, params)
        await agent.run("true")
        assert host.resumption.session_memory.total <= MIB


async def test_small_agent_loses_nothing_to_a_large_one(monkeypatch):
    monkeypatch.setattr(memory, "TOTAL_BYTES", MIB)
    async with host_here() as host, agent_of(host) as small, agent_of(host) as large:
        await small.request("_acpterm/session/set", {"sessionId": "own", "cwd": "/usr"})
        for number in range(200):
            await large.notify(*tell(f"s{number}"))
        await large.run("true")
        assert host.resumption.session_memory.total <= MIB
        small.session = "own"
        assert (await small.run("pwd"))[0] == "/usr\n"


async def test_total_is_limited_when_each_of_many_connections_has_one_session(monkeypatch):
    monkeypatch.setattr(memory, "TOTAL_BYTES", MIB)
    async with host_here() as host, AsyncExitStack() as stack:
        agents = [await stack.enter_async_context(agent_of(host)) for _ in range(20)]
        for agent in agents:
            for call in range(5):
                method, params = tell("s", size=16_000)
                params["update"]["toolCallId"] = f"c{call}"
                await agent.notify(method, params)
            await agent.request("_acpterm/session/set", {"sessionId": "s", "cwd": "/usr"})
        assert MIB // 2 < host.resumption.session_memory.total <= MIB
        # The session that was used last has lost nothing.
        agents[-1].session = "s"
        assert (await agents[-1].run("pwd"))[0] == "/usr\n"


async def test_memory_of_a_closed_connection_is_not_counted(host):
    async with agent_of(host) as agent:
        await agent.notify(*tell("s"))
        await agent.run("true")
        assert host.resumption.session_memory.total > 8_000
    async with agent_of(host) as agent:
        await agent.run("true")
        assert host.resumption.session_memory.total < 8_000
