"""Clients of a real daemon whose worker is killed or replaced: they see a slow answer alone."""

import json
import os
import signal

import pytest
import trio

from tests.support.commands import run, running
from tests.support.desk import Desk, daemon_in
from tests.support.editor import proxied, say, shown
from tests.support.hosts import agent_on_stdio, alive, daemon, environment, poll
from tests.support.person import person_at
from tests.support.tmux import needs_tmux, tmux_server

COUNT = "for n in $(seq 40); do echo line $n; sleep 0.02; done; exit 3"
COUNTED = "".join(f"line {n}\n" for n in range(1, 41))


async def status(path):
    async with person_at(path.replace("agent.sock", "user.sock")) as person:
        return await person.request("status", {})


async def kill_worker(path):
    """SIGKILL the worker, and wait until another one answers."""
    before = await status(path)
    os.kill(before["workerPid"], signal.SIGKILL)
    await poll(lambda: not alive(before["workerPid"]))
    after = await status(path)
    assert after["takeovers"] > before["takeovers"]
    assert after["keeperPid"] == before["keeperPid"]


async def commands_are_connected(path, number):
    with trio.fail_after(10):
        while (await status(path))["people"] <= number:
            await trio.sleep(0.01)


async def restart(path):
    done = await run(path, "restart", "--json")
    assert done.status == 0, done.err
    return json.loads(done.out)


ENDS = [kill_worker, restart]


@pytest.mark.parametrize("end", ENDS)
async def test_an_agent_on_stdio_has_its_waits_answered_and_all_output(tmp_path, end):
    async with daemon(tmp_path) as (_, path):
        stdio = agent_on_stdio(tmp_path, "--socket", path, embedded=False, env=environment())
        async with stdio as (relay, agent):
            terminal = await agent.create(COUNT)
            pid = await agent.create("echo $$; read x; exit 5")
            before = await agent.until_output(pid, "\n")
            wait = await agent.start("terminal/wait_for_exit", agent.of(terminal))
            await end(path)
            assert (await agent.answer(wait))["exitCode"] == 3
            assert (await agent.output(terminal))["output"] == COUNTED
            assert (await agent.output(pid))["output"] == before
            await agent.type(pid, "x\n")
            assert (await agent.wait(pid))["exitCode"] == 5
            await agent.release(terminal)
            await agent.stream.aclose()
            assert await relay.wait() == 0


async def test_an_editor_behind_the_proxy_is_shown_all_of_it(tmp_path):
    async with daemon(tmp_path) as (_, path):
        settings = {"socket": path}
        async with proxied(settings=settings, embedded=False) as editor:
            await editor.open(str(tmp_path))
            turn = await editor.begin(*shown(COUNT), say("done"))
            await editor.until(lambda: any("line 3\n" in text for text in editor.texts()))
            await kill_worker(path)
            assert (await editor.wait(turn))["stopReason"] == "end_turn"
            last = editor.texts()[-1]
            assert last.endswith("line 40\n[exit status 3]\n```")
            assert "line 1\nline 2\n" in last


async def test_logs_and_wait_go_on_and_print_nothing_twice(tmp_path):
    async with daemon(tmp_path) as (_, path):
        command = ["run", "-d", "--name", "n", "sh", "-c"]
        assert (await run(path, *command, f"read go; {COUNT}")).status == 0
        async with (
            running(tmp_path, path, "logs", "-f", "n") as logs,
            running(tmp_path, path, "wait", "n") as wait,
            running(tmp_path, path, "wait", "n", "--for", "^line 39$") as found,
            running(tmp_path, path, "events", "--json") as events,
        ):
            await commands_are_connected(path, 4)
            await run(path, "send", "n", "go", "--enter")
            await logs.until(lambda: "line 3\n" in logs.out)
            await kill_worker(path)
            assert await logs.wait() == 0
            assert await wait.wait() == 3
            assert await found.wait() == 0
            # That it has exited may be among what is missing.
            await events.until(lambda: '"reconnected"' in events.out)
        assert logs.out.endswith(COUNTED)
        assert logs.out.count("line 3\n") == 1
        assert found.out == "line 39\n"
        assert [json.loads(line)["event"] for line in events.lines].count("reconnected") == 1


async def test_run_in_a_pipe_prints_all_of_it(tmp_path):
    async with daemon(tmp_path) as (_, path):
        async with running(tmp_path, path, "run", "sh", "-c", COUNT) as process:
            await process.until(lambda: "line 3" in process.out)
            await kill_worker(path)
            assert await process.wait() == 3
        assert process.out.replace("\r", "") == COUNTED
        assert process.err == ""


@needs_tmux
def test_an_attached_window_goes_on(tmp_path):
    with daemon_in(tmp_path / "run") as daemon, tmux_server(tmp_path / "tmux") as tmux:
        desk = Desk(daemon, tmux)
        name = daemon.make("sh", "-c", "echo a picture; while read line; do echo got $line; done")
        window = desk.attach(name)
        window.until("a picture")
        before = daemon.ask("status")
        os.kill(before["workerPid"], signal.SIGKILL)
        window.until(lambda: daemon.ask("status")["takeovers"] > before["takeovers"])
        window.until(lambda: daemon.about(name)["attached"] == 1)
        window.keys("Enter")
        window.until("got")
