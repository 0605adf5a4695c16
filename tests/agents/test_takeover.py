"""Clients of a real daemon whose worker is killed or replaced only see a slow response."""

import json
import os
import signal

import pytest
import trio

from acpterm.jsonrpc import RpcError
from tests.support.commands import run, running
from tests.support.daemon import blocking_daemon, daemon, user_socket
from tests.support.depth import DEADLINE_S
from tests.support.editor import AGENT, proxied, say, shown
from tests.support.hosts import agent_on_stdio
from tests.support.polling import poll
from tests.support.processes import alive, environment
from tests.support.tmux import needs_tmux, tmux_server
from tests.support.user import user_at
from tests.support.windows import Windows

COUNT = "for n in $(seq 40); do echo line $n; sleep 0.02; done; exit 3"
COUNTED = "".join(f"line {n}\n" for n in range(1, 41))


async def status(path):
    async with user_at(user_socket(path)) as user:
        return await user.request("status", {})


async def kill_worker(path):
    """Kill the worker with SIGKILL, and wait until another one responds."""
    before = await status(path)
    os.kill(before["workerPid"], signal.SIGKILL)
    await poll(lambda: not alive(before["workerPid"]))
    after = await status(path)
    assert after["takeovers"] > before["takeovers"]
    assert after["keeperPid"] == before["keeperPid"]


async def commands_are_connected(path, number):
    with trio.fail_after(DEADLINE_S):
        while (await status(path))["users"] <= number:
            await trio.sleep(0.01)


async def restart(path):
    done = await run(path, "restart", "--json")
    assert done.status == 0, done.err
    return json.loads(done.out)


ENDS = [kill_worker, restart]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.long
async def test_agent_on_stdio_gets_its_waits_and_all_output_after_a_takeover(tmp_path, end):
    async with daemon(tmp_path) as (_, path):
        how = {"embedded": False, "below_shell": True, "env": environment()}
        stdio = agent_on_stdio(tmp_path, "--socket", path, **how)
        async with stdio as (relay, agent):
            terminal = await agent.create(COUNT)
            pid = await agent.create("echo $$; read x; exit 5")
            before = await agent.until_output(pid, "\n")
            wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
            await end(path)
            assert (await agent.result(wait))["exitCode"] == 3
            assert (await agent.output(terminal))["output"] == COUNTED
            assert (await agent.output(pid))["output"] == before
            await agent.type(pid, "x\n")
            assert (await agent.wait(pid))["exitCode"] == 5
            await agent.release(terminal)
            await agent.stream.aclose()
            assert await relay.wait() == 0


@pytest.mark.long
async def test_editor_behind_the_proxy_gets_all_output_after_a_takeover(tmp_path):
    async with daemon(tmp_path) as (_, path):
        settings = {"socket": path}
        # The proxy runs in this process, so the daemon takes this process for an agent.
        before = await status(path)
        async with proxied(settings=settings, embedded=False) as editor:
            await editor.open(str(tmp_path))
            turn = await editor.begin(*shown(COUNT), say("done"))
            await editor.until(lambda: any("line 3\n" in text for text in editor.texts()))
            os.kill(before["workerPid"], signal.SIGKILL)
            assert (await editor.result(turn))["stopReason"] == "end_turn"
            last = editor.texts()[-1]
            assert last.endswith("line 40\n[exit status 3]\n```")
            assert "line 1\nline 2\n" in last
        # The daemon may notice a moment later that the proxy is gone.
        with trio.fail_after(DEADLINE_S):
            after = None
            while after is None:
                try:
                    after = await status(path)
                except* RpcError:
                    await trio.sleep(0.01)
        assert after["takeovers"] > before["takeovers"]


@pytest.mark.long
async def test_prompt_prints_all_output_after_a_takeover(tmp_path):
    async with daemon(tmp_path) as (_, path):
        steps = json.dumps([*shown(COUNT, title="count"), say("done")])
        async with running(tmp_path, path, "prompt", steps, "--", *AGENT) as prompt:
            await poll(lambda: "line 3\n" in prompt.out)
            await kill_worker(path)
            assert await prompt.wait() == 0
        assert prompt.out.count("line 1\n") == prompt.out.count("line 40\n") == 1
        assert prompt.out.endswith("done\n")


@pytest.mark.long
async def test_logs_and_wait_continue_without_duplicates_after_a_takeover(tmp_path):
    async with daemon(tmp_path) as (_, path):
        command = ["run", "-d", "--name", "n", "sh", "-c"]
        assert (await run(path, *command, f"read go; {COUNT}")).status == 0
        async with (
            running(tmp_path, path, "logs", "-f", "n") as logs,
            running(tmp_path, path, "wait", "n") as wait,
            running(tmp_path, path, "wait", "n", "--for", "^line 39$") as line_wait,
            running(tmp_path, path, "events", "--json") as events,
        ):
            await commands_are_connected(path, 4)
            # On a busy machine it is connected long before it has asked for the events.
            with trio.fail_after(DEADLINE_S):
                while not events.out:
                    await run(path, "run", "-d", "true")
            await run(path, "send", "n", "go", "--enter")
            await poll(lambda: "line 3\n" in logs.out)
            await kill_worker(path)
            assert await logs.wait() == 0
            assert await wait.wait() == 3
            assert await line_wait.wait() == 0
            # The exit may be part of the missing output.
            await poll(lambda: '"reconnected"' in events.out)
        assert logs.out.endswith(COUNTED)
        assert logs.out.count("line 3\n") == 1
        assert line_wait.out == "line 39\n"
        assert [json.loads(line)["event"] for line in events.lines].count("reconnected") == 1


@pytest.mark.long
async def test_run_in_a_pipe_prints_all_output_after_a_takeover(tmp_path):
    async with daemon(tmp_path) as (_, path):
        async with running(tmp_path, path, "run", "sh", "-c", COUNT) as process:
            await poll(lambda: "line 3" in process.out)
            await kill_worker(path)
            assert await process.wait() == 3
        assert process.out.replace("\r", "") == COUNTED
        assert process.err == ""


@needs_tmux
@pytest.mark.long
def test_attach_continues_after_a_takeover(tmp_path):
    with blocking_daemon(tmp_path / "run") as daemon, tmux_server(tmp_path / "tmux") as tmux:
        windows = Windows(daemon, tmux)
        name = daemon.create("sh", "-c", "echo a picture; while read line; do echo got $line; done")
        window = windows.attach(name)
        window.until("a picture")
        before = daemon.request("status")
        os.kill(before["workerPid"], signal.SIGKILL)
        window.until(lambda: daemon.request("status")["takeovers"] > before["takeovers"])
        window.until(lambda: daemon.info(name)["attached"] == 1)
        window.keys("Enter")
        window.until("got")


@pytest.mark.exhaustive
@pytest.mark.long
async def test_creates_run_exactly_once_while_workers_are_killed(tmp_path):
    lines = "".join(f"line {n}\n" for n in range(1, 6))
    command = "for n in 1 2 3 4 5; do echo line $n; sleep 0.02; done; exit 7"
    async with daemon(tmp_path) as (_, path):
        how = {"embedded": False, "below_shell": True, "env": environment()}
        stdio = agent_on_stdio(tmp_path, "--socket", path, **how)
        async with stdio as (_, agent), trio.open_nursery() as nursery:
            send, sending, over = agent.send, trio.Lock(), trio.Event()

            async def send_in_turn(data):
                async with sending:
                    await send(data)

            agent.send = send_in_turn
            programs = 0

            async def run_programs():
                nonlocal programs
                while not over.is_set():
                    programs += 1
                    mark = tmp_path / f"program-{programs}"
                    terminal = await agent.create(f"echo >> {mark}; {command}")
                    assert (await agent.wait(terminal))["exitCode"] == 7
                    assert (await agent.output(terminal))["output"] == lines
                    assert mark.read_text() == "\n", "the program was started twice"
                    await agent.release(terminal)

            for _ in range(4):
                nursery.start_soon(run_programs)
            for _ in range(3):
                before = programs
                await poll(lambda before=before: programs > before + 4)
                await kill_worker(path)
            over.set()
        assert programs > 12


@pytest.mark.parametrize("end", ENDS)
async def test_write_that_is_repeated_at_the_next_worker_is_not_typed_again(tmp_path, end):
    async with daemon(tmp_path) as (_, path):
        async with user_at(user_socket(path)) as user:
            terminal = await user.create("read a; read b; echo got $a,$b")
            one = {"terminalId": terminal, "data": "one\n", "token": "1"}
            await user.request("terminal/write", one)
        await end(path)
        async with user_at(user_socket(path)) as user:
            for write in (one, one | {"data": "two\n", "token": "2"}):
                assert await user.request("terminal/write", write) == {"written": 4}
            await user.until_output(terminal, "got one,two")
