"""What works when no thread, process or descriptor is left."""

import os
import resource
import signal
import socket
import sys
from contextlib import AsyncExitStack

import pytest
import trio

from acpterm.host.launch import validation
from acpterm.jsonrpc import RpcError
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.runtime.descriptors import DescriptorReserve, reserve
from acpterm.runtime.threads import run_blocking
from tests.pty.scarcity import no_descriptors
from tests.support import other_user
from tests.support.agent import agent_at, agent_of, agent_on
from tests.support.bounded import bounds
from tests.support.connector import connect_as_agent
from tests.support.daemon import daemon, user_socket
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.user import user_at, user_of, user_on

PROCESSES = 60


async def refuse_thread(*_, **__):
    raise RuntimeError("can't start new thread")


@pytest.mark.costly
@pytest.mark.parametrize("tracking", ["cgroup", "subreaper"])
async def test_host_works_without_threads(tmp_path, monkeypatch, tracking):
    if tracking == "cgroup":
        if (groups := Cgroups.find()) is None:
            pytest.skip("this process may make no control groups")
        groups.close()
    settings = {"record": True, "record_dir": str(tmp_path), "kill_grace": 0.2}
    async with host_here(tracking=tracking, **settings) as host:
        monkeypatch.setattr(trio.to_thread, "run_sync", refuse_thread)
        async with agent_of(host) as agent, user_of(host) as user:
            line = "trap '' TERM HUP; echo $$; (setsid sh -c 'echo $$; exec sleep 60' &); sleep 60"
            terminals = [await agent.create(line, cwd=str(tmp_path)) for _ in range(2)]
            pids = []
            for terminal in terminals:
                with trio.fail_after(DEADLINE_S):
                    while len(two := (await agent.output(terminal))["output"].split()) < 2:
                        await trio.sleep(0.005)
                pids += map(int, two)
            assert len(await user.list()) == 2
            await user.open("terminal/attach", terminalId=terminals[0], cols=80, rows=24)
            await agent.request("terminal/kill", agent.of(terminals[0]))
            await agent.release(terminals[1])
            with trio.fail_after(DEADLINE_S):
                status = await agent.request("terminal/wait_for_exit", agent.of(terminals[0]))
            assert status["signal"] == "SIGKILL"
            await poll(lambda: not any(alive(pid) for pid in pids))
            assert (await agent.run("echo here"))[0] == "here\n"


async def test_run_blocking_works_without_threads(monkeypatch):
    monkeypatch.setattr(trio.to_thread, "run_sync", refuse_thread)
    assert await run_blocking(lambda: 5) == 5
    with pytest.raises(ZeroDivisionError):
        await run_blocking(lambda: 1 // 0)
    with pytest.raises(RpcError, match="does not exist"):
        await validation.DirectoryCache().check("/none/such")


async def test_run_blocking_raises_the_error_of_its_work_once():
    done = []

    def work():
        done.append(1)
        raise RuntimeError("its own")

    with pytest.raises(RuntimeError, match="its own"):
        await run_blocking(work)
    assert done == [1]


async def _create_until_refused(agent):
    """Create terminals until one is refused, which raises `RpcError`.

    Some may start, since the storm needs some time to replace a process that has ended.
    """
    while True:
        await agent.create("echo no")


@pytest.mark.long
async def test_user_can_list_attach_and_kill_when_no_process_is_left():
    with other_user.directory() as path, bounds(PROCESSES) as before:
        more = {"ACPTERM_KILL_GRACE": "0.3"}
        async with other_user.daemon_of_user(path, before, **more) as (process, agents):
            user_stream = await other_user.connect(str(path / "run" / "user.sock"))
            async with user_on(user_stream) as user:
                # The user connects before this process holds an agent's connection.
                assert await user.list() == []
                async with agent_on(await other_user.connect(agents)) as agent:
                    quiet = await agent.create("echo quiet; read x")
                    short = await agent.create("sleep 1 & echo started; wait; exit 5")
                    await agent.until_output(short, "started")
                    storm = await agent.create(
                        sys.executable,
                        args=["-m", "tests.support.storm", str(PROCESSES), "60"],
                        cwd=os.getcwd(),
                    )
                    await agent.until_output(storm, "full", 20)
                    with trio.fail_after(DEADLINE_S):
                        assert len(await user.list()) == 3
                        await user.open("terminal/attach", terminalId=quiet, cols=80, rows=24)
                        waited = await agent.request("terminal/wait_for_exit", agent.of(short))
                        assert waited["exitCode"] == 5
                        with pytest.raises(RpcError, match="limit of this user's processes"):
                            await _create_until_refused(agent)
                        await user.terminal_request("kill", storm)
                        await agent.request("terminal/wait_for_exit", agent.of(storm))
                        await agent.release(quiet)
                    with trio.fail_after(DEADLINE_S):
                        while True:
                            try:
                                output, _ = await agent.run("echo here")
                                break
                            except RpcError:
                                await trio.sleep(0.1)
                    assert output == "here\n"
            assert process.process.poll() is None
            assert "Traceback" not in process.logged()


@pytest.mark.long
async def test_user_is_served_when_no_descriptor_is_left(tmp_path):
    def limit():
        resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160))

    env = environment(XDG_CONFIG_HOME=str(tmp_path), ACPTERM_KILL_GRACE="0.2")
    async with daemon(tmp_path, env=env, preexec_fn=limit) as (running, path):
        async with trio.open_nursery() as nursery:
            first = await nursery.start(_agent, path)
            stubborn = await first.create("trap '' TERM; echo $$; while :; do sleep 0.05; done")
            pid = int(await first.until_output(stubborn, "\n"))
            streams = []
            refusal = None
            while refusal is None:
                assert len(streams) < 160
                streams.append(await connect_as_agent(path))
                refusal = await _refusal(streams[-1])
            assert "no file descriptor left" in refusal
            assert "160 files (ulimit -n)" in refusal
            with pytest.raises(RpcError, match="limit of acpterm's open files"):
                await first.create("echo no")
            user_path = user_socket(path)
            async with user_at(user_path) as user, user_at(user_path) as other:
                assert [one["terminalId"] for one in await user.list()] == [stubborn]
                await other.open("terminal/attach", terminalId=stubborn, cols=80, rows=24)
                with trio.fail_after(DEADLINE_S):
                    await user.terminal_request("kill", stubborn)
                    await first.request("terminal/wait_for_exit", first.of(stubborn))
                await poll(lambda: not alive(pid))
                await user.terminal_request("release", stubborn)
            for stream in streams:
                await stream.aclose()

            async def again():
                async with await connect_as_agent(path) as stream:
                    return await _refusal(stream) is None

            with trio.fail_after(DEADLINE_S):
                while not await again():
                    await trio.sleep(0.05)
            assert (await first.run("echo here"))[0] == "here\n"
            nursery.cancel_scope.cancel()
        assert running.process.poll() is None
        assert "Traceback" not in running.logged(), running.logged()[-5000:]


NO_THREADS = """
import sys, threading
def refuse(*_):
    raise RuntimeError("can't start new thread")
threading.Thread.start = refuse
from acpterm.cli import main
main()
"""


@pytest.mark.long
async def test_users_commands_work_without_threads(tmp_path):
    env = environment(XDG_CONFIG_HOME=str(tmp_path))
    async with daemon(tmp_path, env=env) as (_, path), agent_at(path) as agent:
        terminal = await agent.create("echo here; exec sleep 60")
        await agent.until_output(terminal, "here")

        async def command(name, *words):
            line = [sys.executable, "-c", NO_THREADS, name, "--socket", path, *words]
            done = await trio.run_process(line, env=env, capture_stdout=True, check=False)
            return done.returncode, done.stdout.decode()

        status, listed = await command("ls")
        assert status == 0
        assert terminal[:12] in listed or "sleep 60" in listed
        assert await command("logs", terminal) == (0, "here\n")
        status, _ = await command("status")
        assert status == 0
        assert (await command("kill", terminal))[0] == 0
        assert (await command("wait", terminal))[0] != 0
        assert (await command("rm", terminal))[0] == 0


@pytest.mark.long
async def test_burst_of_connections_waits_in_the_queue(tmp_path):
    count = min(1000, socket.SOMAXCONN)
    env = environment(XDG_CONFIG_HOME=str(tmp_path))
    async with daemon(tmp_path, env=env) as (_, path), AsyncExitStack() as stack:
        async with user_at(user_socket(path)) as user:
            worker = (await user.request("status"))["workerPid"]
        os.kill(worker, signal.SIGSTOP)
        streams = []
        for _number in range(count):
            burst = stack.enter_context(socket.socket(socket.AF_UNIX))
            burst.setblocking(False)
            burst.connect(path)
            streams.append(trio.SocketStream(trio.socket.from_stdlib_socket(burst)))
        os.kill(worker, signal.SIGCONT)
        for stream in streams:
            assert await _refusal(stream) is None
            await stream.aclose()


async def _agent(path, *, task_status):
    async with agent_on(await connect_as_agent(path)) as agent:
        task_status.started(agent)
        await trio.sleep_forever()


async def _refusal(stream):
    """Send `initialize` on a new connection; return the response if it is an error, else None."""
    params = b'{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":1}}\n'
    await stream.send_all(params)
    answer = b""
    with trio.fail_after(DEADLINE_S):
        while not answer.endswith(b"\n"):
            answer += await stream.receive_some(65536)
    return None if b'"result"' in answer else answer.decode()


def test_reserve_lends_and_takes_back():
    reserve = DescriptorReserve()
    reserve.keep(4)
    try:
        with no_descriptors():
            with pytest.raises(OSError, match="Too many open files"):
                os.open("/dev/null", os.O_RDONLY)
            with reserve.lent(2):
                fd = os.open("/dev/null", os.O_RDONLY)
            assert not reserve.refill()
            os.close(fd)
            assert reserve.refill()
    finally:
        reserve.keep(0)


async def test_reserve_is_empty_unless_it_is_kept():
    assert reserve.refill()
