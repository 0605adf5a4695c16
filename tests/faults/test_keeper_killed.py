"""SIGKILL of the keeper: the loss is reported, nothing is left, and the next daemon starts."""

import os
import signal
import subprocess
from typing import Any

import pytest
import trio

from tests.faults.counts import rounds
from tests.faults.daemon import ACPTERM, Daemon, alive, daemon, until
from tests.faults.wire import Agent, socket_agent, stdio_agent

pytestmark = [pytest.mark.long, pytest.mark.timeout(90)]

_RESPONSE_TIMEOUT_S = 10
_TREE = "setsid sleep 300 & (sleep 300 &) ; echo pids $$ $!; exec sleep 300"


@rounds(3, 20)
async def test_loss_is_reported_and_no_process_is_left_when_the_keeper_is_killed(
    tmp_path, index, report
):
    async with (
        daemon(tmp_path, kill_grace="0.5") as running,
        socket_agent(running.socket) as direct,
        stdio_agent(running.socket, running.env, None) as bridged,
        trio.open_nursery() as nursery,
    ):
        agents: list[Agent] = [direct, bridged]
        responses: list[dict[str, Any]] = []
        pids: list[int] = []

        async def wait(agent: Agent, terminal: str) -> None:
            responses.append(await agent.wait(terminal))

        for agent in agents:
            for _ in range(2):
                terminal = await agent.create("/bin/sh", "-c", _TREE)
                pids += await _pids(agent, terminal)
                nursery.start_soon(wait, agent, terminal)
        await trio.sleep(0.1 * (index % 5))
        worker = await running.worker()
        os.kill(running.pid, signal.SIGKILL)
        before = trio.current_time()
        await until(
            lambda: len(responses) == 4, _RESPONSE_TIMEOUT_S, lambda: f"waits answered: {responses}"
        )
        report.happened("SIGKILL of the keeper", trio.current_time() - before)
        for status in responses:
            assert status["_meta"]["acpterm"]["endedBy"] == "lost", status
            assert status["exitCode"] != 0
        await running.check_nothing_left(worker, *pids)
        assert running.process is not None
        running.process.wait()
        await _check_next_daemon(running)
        nursery.cancel_scope.cancel()


async def _pids(agent: Agent, terminal: str) -> list[int]:
    with trio.fail_after(10):
        while "\n" not in (text := (await agent.output(terminal))["output"]):
            await trio.sleep(0.01)
    pids = [int(word) for word in text.split()[1:]]
    assert all(map(alive, pids))
    return pids


async def _check_next_daemon(running: Daemon) -> None:
    """Start a daemon at the same place, run a command there, and shut the daemon down."""
    await running.start({}, ())
    await _acpterm(running, "run", "-d", "true")
    status = await running.status()
    assert status["pid"] == running.pid
    assert status["running"] + status["exited"] + status["retained"] <= 1
    await _acpterm(running, "shutdown")
    await running.check_nothing_left(status["pid"])


async def _acpterm(running: Daemon, *words: str) -> None:
    done = await trio.run_process(
        [*ACPTERM, words[0], "--socket", running.socket, *words[1:]],
        env=running.env,
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    assert done.returncode == 0, done.stdout.decode()
