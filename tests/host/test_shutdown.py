"""The end of a host: pending requests answered, nothing left, within five seconds."""

import json
import os
import signal
import socket
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from acpterm.host.daemon import _end_when_idle
from acpterm.host.server.daemon_sockets import has_queued
from acpterm.jsonrpc import RpcError
from acpterm.keeper.reports import KeeperLostError
from acpterm.terminal.pool import Pool
from tests.support.agent import agent_at, agent_of
from tests.support.daemon import daemon, listens
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_on_stdio, host_here
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.stopwatch import stopwatch

# Ignores all signals it can, as do its child and a process that has left the session.
STUBBORN = """
trap '' TERM HUP INT
sh -c "trap '' TERM HUP INT; echo \\$\\$ >>{pids}; while :; do sleep 1; done" &
setsid sh -c "trap '' TERM HUP INT; echo \\$\\$ >>{pids}; while :; do sleep 1; done" &
echo $$ >>{pids}
while :; do sleep 1; done
"""

END_MAX_S = 5
# Shorter than by default, since responses are sent only within `CLOSE_TIMEOUT_S`.
GRACE_S = 0.5


@pytest.fixture(autouse=True)
def _hearing_of_hangups():
    """Reset SIGHUP, which hosts ignore if the tests run under nohup."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


async def stubborn(agent, tmp_path):
    """Start a terminal whose processes ignore SIGTERM; return its id and the three pids."""
    pids = tmp_path / f"pids-{os.urandom(4).hex()}"
    terminal = await agent.create(STUBBORN.format(pids=pids))
    await poll(lambda: pids.exists() and len(pids.read_text().split()) == 3)
    return terminal, [int(pid) for pid in pids.read_text().split()]


@pytest.mark.costly
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
@pytest.mark.parametrize("tracking", ["auto", "subreaper"])
@pytest.mark.long
async def test_daemon_ends_in_order_within_five_seconds(tmp_path, number, tracking, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    settings = tmp_path / "settings.toml"
    settings.write_text(f'tracking = "{tracking}"\nkill_grace = {GRACE_S}\n')
    async with (
        daemon(tmp_path, "--config", str(settings)) as (process, path),
        agent_at(path) as one,
        agent_at(path) as two,
    ):
        pids, waits = [], []
        for agent in (one, two, two):
            terminal, more = await stubborn(agent, tmp_path)
            pids += more
            waits.append((agent, await agent.start("terminal/wait_for_exit", agent.of(terminal))))
        read = await one.start("_acpterm/terminal/read", one.of(terminal, waitMs=60_000))
        reads = await two.start(
            "_acpterm/terminal/read", two.of(terminal, since=0, waitMs=60_000, format="raw")
        )
        await two.request("initialize", {"protocolVersion": 1})

        async with stopwatch() as parts:
            process.process.send_signal(number)
            assert await process.wait() == 0
        assert sum(parts) < END_MAX_S
        for agent, wait in waits:
            status = await agent.result(wait)
            assert status["signal"] == "SIGKILL"
            assert status["_meta"]["acpterm"]["endedBy"] == "disconnect"
        assert (await two.result(reads))["exitStatus"]["signal"] == "SIGKILL"
        assert one.responses[read]["error"]["code"] == -32002, "it was two's terminal"
        await one.closed.wait()
        await two.closed.wait()
        assert not [pid for pid in pids if alive(pid)]
        assert os.listdir(Path(path).parent) == []


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.long
async def test_stdio_host_ends_in_order_within_five_seconds(tmp_path, number):
    env = environment(XDG_CONFIG_HOME=str(tmp_path), ACPTERM_KILL_GRACE=str(GRACE_S))
    async with agent_on_stdio(tmp_path, env=env) as (process, agent):
        terminal, pids = await stubborn(agent, tmp_path)
        wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
        await agent.request("initialize", {"protocolVersion": 1})
        async with stopwatch() as parts:
            process.process.send_signal(number)
            assert await process.wait() == 0
        assert sum(parts) < END_MAX_S
        assert (await agent.result(wait))["signal"] == "SIGKILL"
        await agent.closed.wait()
        assert not [pid for pid in pids if alive(pid)]


@pytest.mark.long
async def test_second_signal_does_not_cut_the_end_short(tmp_path):
    settings = {"kill_grace": GRACE_S}
    async with daemon(tmp_path, settings=settings) as (process, path), agent_at(path) as agent:
        terminal, pids = await stubborn(agent, tmp_path)
        wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
        await agent.request("initialize", {"protocolVersion": 1})
        process.process.send_signal(signal.SIGINT)
        await poll(lambda: "ending" in process.logged())
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGINT):
            process.process.send_signal(number)
        assert (await agent.result(wait))["signal"] == "SIGKILL"
        assert await process.wait() == 0
        assert not [pid for pid in pids if alive(pid)]


@pytest.mark.long
async def test_program_gets_grace_when_the_daemon_ends(tmp_path):
    tidy = tmp_path / "tidy"
    async with daemon(tmp_path) as (process, path), agent_at(path) as agent:
        trap = f"trap 'sleep 0.3; echo done >{tidy}; exit 3' TERM"
        command = f"{trap}; echo go; while :; do sleep 0.02; done"
        terminal = await agent.create(command)
        await agent.until_output(terminal, "go")
        wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
        await agent.request("initialize", {"protocolVersion": 1})
        process.terminate()
        assert (await agent.result(wait))["exitCode"] == 3
        assert await process.wait() == 0
        assert tidy.read_text() == "done\n"


@pytest.mark.long
async def test_daemon_ends_when_an_agent_reads_nothing(tmp_path):
    async with daemon(tmp_path) as (process, path), agent_at(path) as agent:
        terminal = await agent.create("head -c 3000000 /dev/zero | tr '\\0' x; read line")
        await agent.until_output(terminal, "x" * 1000)
        with socket.socket(socket.AF_UNIX) as mute:
            mute.connect(path)
            mute.sendall(
                b'{"jsonrpc":"2.0","id":1,"method":"terminal/create","params":'
                b'{"sessionId":"s","command":"yes"}}\n'
            )
            terminal = json.loads(await trio.to_thread.run_sync(mute.makefile().readline))
            params = {"sessionId": "s", "terminalId": terminal["result"]["terminalId"]}
            ask = {"jsonrpc": "2.0", "id": 2, "method": "terminal/output", "params": params}
            mute.settimeout(0.3)
            asks = b"".join(json.dumps(ask | {"id": n}).encode() + b"\n" for n in range(2, 20_000))
            with pytest.raises(TimeoutError):
                mute.sendall(asks)
            async with stopwatch() as parts:
                process.terminate()
                assert await process.wait() == 0
            assert sum(parts) < END_MAX_S


@pytest.mark.long
async def test_daemon_ends_while_agents_connect_and_disconnect(tmp_path):
    """Agents that connect meanwhile are served, refused or disconnected; none delays the end."""
    for _ in range(5):
        async with daemon(tmp_path) as (process, path):
            streams = []

            def connect(path=path, streams=streams):
                with suppress(OSError):  # the socket has been removed
                    while len(streams) < 500:
                        streams.append(socket.socket(socket.AF_UNIX))
                        streams[-1].connect(path)
                        streams[-1].send(b'{"jsonrpc":"2.0","id":1,"method":"x"}\n')

            async with trio.open_nursery() as nursery:
                nursery.start_soon(trio.to_thread.run_sync, connect)
                await poll(lambda streams=streams: len(streams) > 20)
                process.terminate()
                assert await process.wait() == 0
            for stream in streams:
                stream.close()


async def test_connection_made_while_the_host_ends_is_closed(host):
    async with trio.open_nursery() as nursery, agent_of(host) as early:
        await early.request("initialize", {"protocolVersion": 1})
        nursery.start_soon(host.close)
        await early.closed.wait()
        async with agent_of(host) as late:
            with trio.fail_after(DEADLINE_S):
                await late.closed.wait()


@pytest.mark.long
async def test_create_is_refused_while_the_host_ends(tmp_path):
    async with daemon(tmp_path) as (process, path), agent_at(path) as agent:
        _, pids = await stubborn(agent, tmp_path)
        marker = tmp_path / "created"
        process.terminate()
        for _ in range(20):
            try:
                await agent.start(
                    "terminal/create", {"sessionId": "s", "command": f"touch {marker}; sleep 60"}
                )
            except trio.BrokenResourceError:
                break
        assert await process.wait() == 0
        assert not [pid for pid in pids if alive(pid)]
        left = [
            name
            for name in os.listdir("/proc")
            if name.isdigit() and str(marker).encode() in command_line(name)
        ]
        assert left == []


def command_line(pid: str) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


@pytest.mark.long
async def test_disconnected_agents_terminals_are_ended_and_no_others(host, tmp_path):
    async with agent_of(host) as stays:
        terminal = await stays.create("read line; echo got $line")
        async with agent_of(host) as leaves:
            _, pids = await stubborn(leaves, tmp_path)
        await poll(lambda: not [pid for pid in pids if alive(pid)])
        await poll(lambda: len(host.terminals.pool.terminals) == 1)
        await stays.type(terminal, "it\n")
        assert (await stays.wait(terminal))["exitCode"] == 0


async def test_program_gets_grace_when_the_agent_disconnects(tmp_path):
    async with agent_on_stdio(tmp_path) as (process, agent):
        tidied = tmp_path / "tidied"
        command = f"trap 'sleep 1.2; touch {tidied}; exit 0' TERM; echo on; sleep 60 & wait"
        terminal = await agent.create(command)
        await agent.until_output(terminal, "on")
        await agent.stream.aclose()
        assert await process.wait() == 0
    assert tidied.exists()


@pytest.mark.long
async def test_idle_daemon_ends_when_no_client_is_connected(
    tmp_path,
):
    env = environment(XDG_CONFIG_HOME=str(tmp_path), ACPTERM_IDLE_EXIT="0.3")
    how = {"env": env, "is_ready": os.path.exists}
    async with daemon(tmp_path, "--when-needed", **how) as (process, path):
        # Without a probe of its sockets: the daemon waits longer for its first connection.
        await poll(lambda: "listening" in process.logged())
        async with agent_at(path) as agent:
            # It stays longer while a client is connected.
            terminal = await agent.create("sleep 1")
            await agent.wait(terminal)
            assert process.process.poll() is None
        assert await process.wait() == 0
        assert "no client was connected" in process.logged()
        assert not listens(path)


async def test_idle_daemon_waits_for_the_first_connection(host):
    async with trio.open_nursery() as nursery:
        shutdown = trio.Event()
        nursery.start_soon(_end_when_idle, host, lambda: False, 0, shutdown)
        await wait_all_tasks_blocked(0.05)
        assert not shutdown.is_set()
        async with agent_of(host) as agent:
            await agent.run("echo here")
        with trio.fail_after(DEADLINE_S):
            await shutdown.wait()


async def test_idle_daemon_stays_while_a_connection_is_queued(tmp_path):
    path = str(tmp_path / "socket")
    async with host_here() as host, trio.open_nursery() as nursery:
        with trio.socket.socket(socket.AF_UNIX) as sock:
            await sock.bind(path)
            sock.listen()
            listener = trio.SocketListener(sock)
            shutdown = trio.Event()
            async with await trio.open_unix_socket(path):
                queued = partial(has_queued, [listener])
                end_when_idle = partial(_end_when_idle, first_request_timeout_s=0)
                nursery.start_soon(end_when_idle, host, queued, 0.02, shutdown)
                with trio.move_on_after(0.3):
                    await shutdown.wait()
                assert not shutdown.is_set()
                async with await listener.accept():
                    with trio.fail_after(DEADLINE_S):
                        await shutdown.wait()


async def test_daemon_without_idle_exit_stays(tmp_path):
    env = environment(XDG_CONFIG_HOME=str(tmp_path), ACPTERM_IDLE_EXIT="0.1")
    async with daemon(tmp_path, env=env) as (process, path):
        async with agent_at(path) as agent:
            await agent.run("sleep 0.5")
        async with agent_at(path) as agent:
            assert (await agent.run("echo still here"))[0] == "still here\n"
        assert process.process.poll() is None


async def test_create_reports_a_shutdown_when_the_keeper_is_lost(monkeypatch):
    async def lose(*_, **__):
        raise KeeperLostError("its process is gone")

    async with host_here() as host, agent_of(host) as agent:
        monkeypatch.setattr(Pool, "create", lose)
        with pytest.raises(RpcError, match=r"^acpterm is shutting down: its process is gone$"):
            await agent.create("true")
