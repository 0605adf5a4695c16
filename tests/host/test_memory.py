"""The memory of a connection is released when it closes."""

import gc
import json
import re
import sys
import weakref
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from acpterm.host.agent import connection as callers
from acpterm.host.server import connection as connections
from acpterm.jsonrpc import Peer, RpcError
from acpterm.pty import linux
from acpterm.runtime.send_queue import SendQueue
from tests.support.agent import agent_of
from tests.support.daemon import daemon, user_socket
from tests.support.hosts import host_here
from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.user import user_at

MIB = 1024 * 1024
LARGE = "x" * 10_000_000
CONNECTIONS, MESSAGES = 8, 4
# Kinds of large messages: with a response, without one, invalid, slow.
MESSAGE = {
    "program": {"method": "terminal/create", "params": {"sessionId": "s", "command": LARGE}},
    "meta": {
        "method": "terminal/create",
        "params": {"sessionId": "s", "command": "sleep 60", "_meta": {"x": LARGE}},
    },
    "no message": {"method": 3, "params": LARGE},
    "no method": {"method": "none/such", "params": LARGE},
    "directory": {
        "method": "_acpterm/session/set",
        "params": {"sessionId": "s", "cwd": f"/{LARGE}"},
    },
    "environment": {
        "method": "initialize",
        "params": {"protocolVersion": 1, "_meta": {"acpterm": {"context": {"env": {"A": LARGE}}}}},
    },
    "tool call": {
        "method": "session/update",
        "params": {
            "sessionId": "s",
            "update": {"sessionUpdate": "tool_call", "toolCallId": LARGE, "title": "t"},
        },
    },
    "terminal of a tool call": {
        "method": "session/update",
        "params": {
            "sessionId": "s",
            "update": {
                "sessionUpdate": "tool_call",
                "toolCallId": "c",
                "title": "t",
                "content": [{"type": "terminal", "terminalId": LARGE}],
            },
        },
    },
}
KINDS = [pytest.param(kind, marks=() if kind == "meta" else pytest.mark.long) for kind in MESSAGE]


def resident(pid):
    with open(f"/proc/{pid}/statm") as file:
        return int(file.read().split()[1]) * 4096


async def send_large(path, message):
    """Send large messages on a connection, wait for all responses, then close it."""
    stream = await trio.open_unix_socket(path)
    async with stream, trio.open_nursery() as nursery:
        answers = 0

        async def read():
            nonlocal answers
            while data := await stream.receive_some(65536):
                answers += data.count(b"\n")

        nursery.start_soon(read)
        is_request = message["method"] != "session/update"
        body = json.dumps(message)[1:].encode()
        for number in range(MESSAGES):
            id_ = b'"id":%d,' % number if is_request else b""
            await stream.send_all(b'{"jsonrpc":"2.0",' + id_ + body + b"\n")
        await stream.send_all(b'{"jsonrpc":"2.0","id":"last","method":"none"}\n')
        await poll(lambda: answers == (MESSAGES if is_request else 0) + 1)
        nursery.cancel_scope.cancel()


@pytest.mark.skipif(not linux.AVAILABLE, reason="memory in use is read from /proc")
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
async def test_memory_is_released_after_large_messages(tmp_path, kind):
    env = environment(XDG_CONFIG_HOME=str(tmp_path))
    async with daemon(tmp_path, env=env) as (_, path):
        async with user_at(user_socket(path)) as user:
            pid = (await user.request("status"))["workerPid"]
        before = resident(pid)
        async with trio.open_nursery() as nursery:
            for _ in range(CONNECTIONS):
                nursery.start_soon(send_large, path, MESSAGE[kind])
        try:
            await poll(lambda: resident(pid) <= before + 20 * MIB)
        except trio.TooSlowError:
            more = (resident(pid) - before) // MIB
            pytest.fail(f"{more} MiB more than before are in use")


@pytest.mark.long
async def test_connection_is_freed_without_a_collection(monkeypatch):
    created = []

    def noted(kind):
        class Noted(kind):
            def __init__(self, *arguments, **more):
                super().__init__(*arguments, **more)
                created.append(weakref.ref(self))

        return Noted

    monkeypatch.setattr("acpterm.host.host.Connection", noted(connections.Connection))
    monkeypatch.setattr(
        "acpterm.host.agent.resumption.AgentConnection", noted(callers.AgentConnection)
    )
    monkeypatch.setattr(connections, "SendQueue", noted(SendQueue))
    monkeypatch.setattr(connections, "Peer", noted(Peer))
    async with host_here() as host:
        gc.collect()
        gc.disable()
        try:
            async with agent_of(host) as agent:
                terminal = await agent.create("echo here; sleep 60")
                await agent.start("terminal/wait_for_exit", agent.of(terminal))
                await agent.send(b"{}\n[]\nno JSON\n")
                with pytest.raises(RpcError):
                    await agent.request("terminal/output", agent.of("none"))
                with pytest.raises(RpcError):
                    await agent.create("echo", args=["x" * 200_000])
            assert len(created) == 4
            if sys.version_info >= (3, 13):
                # A cycle is left there; the daemon collects it when a connection has closed.
                await poll(lambda: gc.collect() >= 0 and not any(one() for one in created))
            else:
                await poll(lambda: not any(one() for one in created))
        finally:
            gc.enable()


async def test_overlong_id_is_not_retained_and_overlong_path_is_refused(agent):
    with pytest.raises(RpcError, match="4096 is the most"):
        await agent.request(
            "_acpterm/session/set", {"sessionId": agent.session, "cwd": "/" + "x" * 4096}
        )


# -- Terminals


def own_kib(worker):
    """Return the memory of a process without pages of files, which other processes share."""
    rollup = Path(f"/proc/{worker}/smaps_rollup").read_text()
    sizes = re.findall(r"^Pss_(?:Anon|Shmem): +(\d+) kB", rollup, re.MULTILINE)
    return sum(map(int, sizes))


@asynccontextmanager
async def warm_worker(tmp_path):
    """Run a daemon; yield an agent, and a function that returns by how much the worker grew."""
    async with daemon(tmp_path) as running, running.agent() as (agent, _):
        for _ in range(5):
            terminal = await agent.create("echo warm")
            await agent.wait(terminal)
            await agent.release(terminal)
        worker = (await running.status())["workerPid"]
        before = own_kib(worker)
        yield agent, lambda: own_kib(worker) - before


@pytest.mark.long
@pytest.mark.skipif(not linux.AVAILABLE, reason="memory in use is read from /proc")
async def test_idle_terminal_takes_little_memory(tmp_path):
    async with warm_worker(tmp_path) as (agent, grown_kib):
        for _ in range(200):
            await agent.create("exec sleep 100")
        # 18 KiB each on an idle machine, 21 on a busy one.
        assert grown_kib() < 200 * 24


@pytest.mark.long
@pytest.mark.skipif(not linux.AVAILABLE, reason="memory in use is read from /proc")
async def test_terminal_takes_its_output_and_text_and_little_more(tmp_path):
    flood = f"yes {'x' * 78} | head -c 3000000"
    async with warm_worker(tmp_path) as (agent, grown_kib):
        for terminal in [await agent.create(flood) for _ in range(12)]:
            await agent.wait(terminal)
        # A MiB of output and its text each. The rest is the terminal, and what the heap keeps.
        await poll(lambda: grown_kib() < 12 * 2560)
