"""A daemon's worker is killed and the next one takes over, with real processes throughout."""

import functools
import json
import os
import signal
from pathlib import Path

import psutil
import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.daemon import daemon, listens
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_on_stdio
from tests.support.polling import poll
from tests.support.processes import alive, environment

COUNT = "i=0; while [ $i -lt {n} ]; do i=$((i+1)); echo line $i; done; read x; echo end; exit 3"

# Each test also checks that its daemon shuts down.
shut_down_daemon = functools.partial(daemon, terminate=True)


def numbered(output):
    lines = output.splitlines()
    return [int(line.split()[1]) for line in lines if line.startswith("line ")]


@pytest.mark.long
async def test_program_runs_on_and_its_session_is_resumed(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create(COUNT.format(n=500), outputByteLimit=100_000)
            await agent.until_output(terminal, "line 500")
            async with daemon.user() as user:
                (before,) = await user.list()
            await daemon.kill_worker()
            await agent.closed.wait()
        assert alive(before["pid"])
        async with daemon.agent(own["resume"]) as (agent, again):
            assert again == {"resume": own["resume"], "resumed": True}
            async with daemon.user() as user:
                (after,) = await user.list()
            # The first worker may have read the output later than the keeper wrote it.
            assert after.pop("lastOutputAt") == pytest.approx(before.pop("lastOutputAt"), abs=2000)
            changing = ("position", "waitingForInput", "waitingProgram")
            for name in changing:
                before.pop(name, None), after.pop(name, None)
            assert after == before
            await agent.type(terminal, "\n")
            status = await agent.wait(terminal)
            assert status["exitCode"] == 3
            assert status["_meta"]["acpterm"]["endedBy"] == "exited"
            output = await agent.output(terminal)
            assert numbered(output["output"]) == list(range(1, 501))
            assert output["output"].endswith("end\n")
            assert (await daemon.status())["takeovers"] == 1
            await agent.release(terminal)


@pytest.mark.long
async def test_repeated_create_is_executed_once(tmp_path):
    ran = tmp_path / "ran"
    params = {"sessionId": "session-1", "command": f"echo ran >> {ran}; sleep 60"}
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            id_ = await agent.start("terminal/create", params)
            # The response is not read: it may have been lost.
            await poll(lambda: (ran.exists() and ran.read_text()) or None)
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            first = await agent.repeat(id_, "terminal/create", params)
            assert ran.read_text() == "ran\n"
            # From now on the id belongs to another request.
            second = await agent.repeat(id_, "terminal/create", params)
            assert first != second
            await poll(lambda: ran.read_text() == "ran\nran\n")


@pytest.mark.long
async def test_id_of_a_confirmed_create_can_be_used_again(tmp_path):
    params = {"sessionId": "session-1", "command": "echo $$; exec sleep 60"}
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            id_ = await agent.start("terminal/create", params)
            first = (await agent.result(id_))["terminalId"]
            await agent.until_output(first, "\n")
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            second = (await agent.repeat(id_, "terminal/create", params))["terminalId"]
            assert first != second
            for terminal in (first, second):
                assert alive(int(await agent.until_output(terminal, "\n")))


@pytest.mark.long
async def test_pending_requests_can_be_repeated(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            running = await agent.create("read line; exit 4")
            released = await agent.create("sleep 60")
            await agent.start("terminal/wait_for_exit", agent.of(running))
            await agent.release(released)
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            waiting = await agent.start("terminal/wait_for_exit", agent.of(running))
            assert await agent.release(released) == {}
            with pytest.raises(RpcError, match="has been released"):
                await agent.output(released)
            await agent.type(running, "\n")
            assert (await agent.result(waiting))["exitCode"] == 4


@pytest.mark.long
async def test_program_that_exits_without_a_worker_has_its_status_and_output(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create("read line; echo the last; exit 7")
            async with daemon.user() as user:
                pid = (await user.terminal_request("get", terminal))["pid"]
            # It is reported at the same time.
            worker = (await daemon.status())["workerPid"]
            os.kill(worker, signal.SIGSTOP)
            await agent.start("_acpterm/terminal/write", agent.of(terminal, data="\n"))
            os.kill(worker, signal.SIGKILL)
        async with daemon.agent(own["resume"]) as (agent, _):
            # The stopped worker has not handled the request.
            await agent.type(terminal, "\n")
            await daemon.kill_worker()
        await poll(lambda: not alive(pid))
        async with daemon.agent(own["resume"]) as (agent, _):
            status = await agent.wait(terminal)
            assert status["exitCode"] == 7
            assert (await agent.output(terminal))["output"].endswith("the last\n")


@pytest.mark.long
async def test_pending_kill_is_resumed(tmp_path):
    stubborn = "trap '' TERM HUP; echo $$; while :; do sleep 0.1; done"
    async with shut_down_daemon(tmp_path, settings={"kill_grace": 5}) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create(stubborn)
            pid = int(await agent.until_output(terminal, "\n"))
            assert await agent.kill(terminal) == {}
            await daemon.kill_worker()
        assert alive(pid)
        async with daemon.agent(own["resume"]) as (agent, _):
            status = await agent.wait(terminal)
            assert status["signal"] == "SIGKILL"
            assert status["_meta"]["acpterm"]["endedBy"] == "agent"
            assert not alive(pid)


@pytest.mark.long
async def test_released_terminal_that_still_runs_is_ended(tmp_path):
    stubborn = "trap '' TERM HUP; echo $$; while :; do sleep 0.1; done"
    async with shut_down_daemon(tmp_path, settings={"kill_grace": 1}) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create(stubborn)
            pid = int(await agent.until_output(terminal, "\n"))
            assert await agent.release(terminal) == {}
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _), daemon.user() as user:
            assert await agent.release(terminal) == {}
            assert await user.list(all=True) == []
            await poll(lambda: not alive(pid))


@pytest.mark.long
async def test_lifetime_of_a_program_is_kept(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create("sleep 60", own={"timeoutMs": 1500})
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            status = await agent.wait(terminal)
            assert status["_meta"]["acpterm"]["endedBy"] == "timeout"
            assert 1500 <= status["_meta"]["acpterm"]["wallMs"] < 20_000


@pytest.mark.long
async def test_users_promoted_and_retained_terminals_are_restored(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own), daemon.user() as user:
            await user.request("terminal/create", {"command": "sleep 60", "name": "mine"})
            promoted = await agent.create("sleep 60")
            await user.terminal_request("promote", promoted)
            shown = await agent.create("echo precious")
            await agent.wait(shown)
            content = [{"type": "terminal", "terminalId": shown}]
            update = {"sessionUpdate": "tool_call", "toolCallId": "c", "title": "Run it"}
            update["content"] = content
            await agent.notify("session/update", {"sessionId": agent.session, "update": update})
            await agent.release(shown)
            before = await user.list(all=True)
            sessions = await user.request("session/list")
            assert len(before) == 3
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _), daemon.user() as user:
            after = await user.list(all=True)
            for entry in (*before, *after):
                for name in ("waitingForInput", "waitingProgram", "lastOutputAt"):
                    entry.pop(name, None)
            assert after == before
            assert await user.request("session/list") == sessions
            assert (await user.terminal_request("output", shown))["text"] == "precious\n"
            with pytest.raises(RpcError, match="the user owns it"):
                await agent.kill(promoted)
            for entry in after:
                await user.terminal_request("release", entry["terminalId"])


@pytest.mark.long
async def test_session_keeps_its_directory_and_environment(tmp_path):
    where = tmp_path / "directory"
    where.mkdir()
    context = {"env": {"PATH": os.environ["PATH"], "MARK": "it"}, "cwd": "/", "umask": 0o027}
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own):
            params = {"protocolVersion": 1, "_meta": {"acpterm": {"asker": context}}}
            await agent.request("initialize", params)
            await agent.request("_acpterm/session/set", {"sessionId": "s", "cwd": str(where)})
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            agent.session = "s"
            output, _ = await agent.run("echo $MARK $(pwd) $(umask)")
            assert output == f"it {where} 0027\n"


@pytest.mark.long
async def test_client_that_does_not_resume_in_time_is_disconnected(tmp_path):
    async with shut_down_daemon(tmp_path, settings={"resume_timeout": 0.5}) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create("echo $$; exec sleep 60")
            pid = int(await agent.until_output(terminal, "\n"))
            await daemon.kill_worker()
        await poll(lambda: not alive(pid))
        async with daemon.agent(own["resume"]) as (agent, again), daemon.user() as user:
            assert again["resumed"] is False
            assert again["resume"] != own["resume"]
            assert await user.list(all=True) == []
            with pytest.raises(RpcError, match="no terminal"):
                await agent.output(terminal)


@pytest.mark.long
async def test_daemon_with_resumable_connections_does_not_end(tmp_path):
    async with shut_down_daemon(
        tmp_path,
        "--when-needed",
        settings={"idle_exit": 0.1, "resume_timeout": 60},
        is_ready=os.path.exists,
    ) as daemon:
        # Without a probe of its sockets: the daemon waits longer for its first connection.
        await poll(lambda: "listening" in daemon.process.logged())
        async with daemon.agent() as (_, own):
            await daemon.kill_worker()
        await trio.sleep(0.5)
        async with daemon.agent(own["resume"]) as (_, again):
            assert again["resumed"] is True
        await daemon.process.wait()


@pytest.mark.long
async def test_connection_made_without_a_worker_is_served(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        inodes = [os.stat(path).st_ino for path in (daemon.path, daemon.user_path)]
        worker = (await daemon.status())["workerPid"]
        os.kill(worker, signal.SIGKILL)
        async with daemon.agent() as (agent, _):
            assert (await agent.run("echo served"))[0] == "served\n"
        assert [os.stat(path).st_ino for path in (daemon.path, daemon.user_path)] == inodes
        daemon.process.terminate()
        assert await daemon.process.wait() == 0
    assert os.listdir(Path(daemon.path).parent) == []


@pytest.mark.long
async def test_restart_replaces_the_worker_and_keeps_everything(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        before = await daemon.status()
        async with daemon.agent() as (agent, own):
            terminal = await agent.create("read line; exit 5")
            async with daemon.user() as user:
                with pytest.raises(EOFError):
                    await user.request("restart")
        after = await daemon.status()
        assert after["keeperPid"] == before["keeperPid"] == daemon.process.pid
        assert after["workerPid"] != before["workerPid"]
        async with daemon.agent(own["resume"]) as (agent, again):
            assert again["resumed"] is True
            await agent.type(terminal, "\n")
            assert (await agent.wait(terminal))["exitCode"] == 5


@pytest.mark.long
async def test_connection_names_are_not_reused(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, own), daemon.user() as user:
            terminal = await agent.create("sleep 60")
            name = (await user.terminal_request("get", terminal))["connection"]
            await daemon.kill_worker()
        async with daemon.agent(), daemon.agent(own["resume"]), daemon.user() as user:
            async with daemon.agent() as (other, _):
                fresh = await other.create("sleep 60")
                names = [
                    (await user.terminal_request("get", id_))["connection"]
                    for id_ in (terminal, fresh)
                ]
            assert names[0] == name
            assert names[1] not in (name, "c1")


async def test_killed_keeper_ends_its_daemon(tmp_path):
    async with shut_down_daemon(tmp_path) as daemon:
        async with daemon.agent() as (agent, _):
            terminal = await agent.create("trap '' HUP; echo $$; while :; do sleep 0.1; done")
            pid = int(await agent.until_output(terminal, "\n"))
            waiting = await agent.start("terminal/wait_for_exit", agent.of(terminal))
            worker = (await daemon.status())["workerPid"]
            daemon.process.process.kill()
            status = await agent.result(waiting)
            assert status["_meta"]["acpterm"]["endedBy"] == "lost"
            assert (status["exitCode"], status["signal"]) == (255, None)
            await agent.closed.wait()
        await poll(lambda: not alive(pid) and not alive(worker))
        assert "the keeper is lost" in daemon.process.logged()
        assert not listens(daemon.path)
        assert os.listdir(Path(daemon.path).parent) == []
        await daemon.process.wait()
    async with shut_down_daemon(tmp_path) as daemon, daemon.agent() as (agent, _):
        assert (await agent.run("echo again"))[0] == "again\n"


async def test_killed_embedded_keeper_ends_its_host(tmp_path):
    async with agent_on_stdio(tmp_path) as (process, agent):
        terminal = await agent.create("trap '' HUP; echo $$; while :; do sleep 0.1; done")
        pid = int(await agent.until_output(terminal, "\n"))
        waiting = await agent.start("terminal/wait_for_exit", agent.of(terminal))
        (keeper,) = psutil.Process(process.pid).children()
        keeper.kill()
        status = await agent.result(waiting)
        assert status["_meta"]["acpterm"]["endedBy"] == "lost"
        assert (status["exitCode"], status["signal"]) == (255, None)
        assert await process.wait() == 1
        assert "acpterm: the keeper" in process.logged()
        await poll(lambda: not alive(pid))


@pytest.mark.long
async def test_recording_is_resumed_without_loss(tmp_path):
    directory = tmp_path / "recordings"
    line = (
        "i=0; while [ $i -lt 3000 ]; do i=$((i+1)); echo é$i; "
        "[ $((i % 50)) = 0 ] && sleep 0.05; done; exit 6"
    )
    async with shut_down_daemon(
        tmp_path, settings={"record": 1, "record_dir": directory}
    ) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create(line)
            await agent.until_output(terminal, "é100")
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            await agent.until_output(terminal, "é1000")
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            assert (await agent.wait(terminal))["exitCode"] == 6
            (file,) = directory.iterdir()
            await poll(lambda: 'exited with 6"]\n' in file.read_text())
            _, *events = [json.loads(event) for event in file.read_text().splitlines()]
            output = "".join(data for _, code, data in events if code == "o")
            assert output.split() == [f"é{number}" for number in range(1, 3001)]
            times = [time for time, _, _ in events]
            assert times == sorted(times)
            assert [data for _, code, data in events if code == "m"] == ["exited with 6"]


# For every Python process that acpterm starts, except the keeper.
BUG = """
import sys

if "serve" in sys.orig_argv:
    import os
    import trio
    from acpterm.host.input_monitor import InputMonitor

    async def run(self):
        while not os.path.exists({path!r}):
            await trio.sleep(0.01)
        os.unlink({path!r})
        raise RuntimeError("a bug")

    InputMonitor.run = run
"""


@pytest.mark.long
async def test_worker_that_fails_by_a_bug_ends_no_program(tmp_path):
    now = tmp_path / "now"
    (tmp_path / "sitecustomize.py").write_text(BUG.format(path=str(now)))
    env = environment(XDG_CONFIG_HOME=str(tmp_path / "none"), PYTHONPATH=str(tmp_path))
    async with shut_down_daemon(tmp_path, env=env) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create("echo $$; read line; exit 5")
            pid = int(await agent.until_output(terminal, "\n"))
            now.touch()
            await agent.closed.wait()
        async with daemon.agent(own["resume"]) as (agent, again):
            assert again["resumed"] is True
            assert alive(pid)
            await agent.type(terminal, "\n")
            assert (await agent.wait(terminal))["exitCode"] == 5
        assert "a bug" in daemon.process.logged()
        assert (await daemon.status())["takeovers"] == 1


@pytest.mark.long
async def test_log_does_not_contain_the_secret(tmp_path):
    async with shut_down_daemon(tmp_path, settings={"log_level": "debug"}) as daemon:
        async with daemon.agent() as (_, own):
            await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _):
            assert await agent.initialize() == {"resume": own["resume"]}
        assert own["resume"] not in daemon.process.logged()


UPDATES = (
    "printf 'shell$ top\\r\\n\\033[?1049h\\033[2J\\033[HHEADER\\033[5;10r\\033[?25l';"
    "yes x | head -80000 | awk '{ printf \"\\033[3;1Hupdate %d\\033[K\", NR }';"
    "printf '\\033[4;1Hready'; read x; printf '\\033[?1049l'; read x"
)


@pytest.mark.long
@pytest.mark.parametrize("raw_bytes", [0, 100_000])
@pytest.mark.parametrize("way", ["restart", "kill"])
async def test_screen_is_exact_after_a_takeover(tmp_path, way, raw_bytes):
    async with shut_down_daemon(tmp_path, settings={"raw_bytes": raw_bytes}) as daemon:
        async with daemon.agent() as (agent, own):
            terminal = await agent.create(UPDATES, own={"cols": 60, "rows": 12})
            async with daemon.user() as user:
                with trio.fail_after(DEADLINE_S):
                    while "ready" not in str(before := await screen(user, terminal)):
                        await trio.sleep(0.01)
                if way == "restart":
                    with pytest.raises(EOFError):
                        await user.request("restart")
            if way == "kill":
                await daemon.kill_worker()
        async with daemon.agent(own["resume"]) as (agent, _), daemon.user() as user:
            after = await screen(user, terminal)
            assert after == before
            assert after["rows"][0] == "HEADER"
            assert after["alternate"]
            await agent.type(terminal, "\n")
            with trio.fail_after(DEADLINE_S):
                while (after := await screen(user, terminal))["alternate"]:
                    await trio.sleep(0.01)
            assert after["rows"][0] == "shell$ top"


async def screen(user, terminal):
    return await user.terminal_request("screen", terminal)
