"""SIGKILL of the worker around a create: its program is executed exactly once."""

from pathlib import Path

import pytest
import trio

from tests.faults.counts import FAULTS_PER_DAEMON, rounds
from tests.faults.daemon import Daemon, daemon
from tests.faults.report import Report
from tests.faults.wire import Agent, socket_agent, stdio_agent

pytestmark = [pytest.mark.long, pytest.mark.timeout(90)]

_FAULT = "SIGKILL of the worker between the execution of a create and its answer"
_SPAWN_MAX_MS = 8
_TRANSPORTS = ("socket", "stdio")


@rounds(6, 50, per_round=FAULTS_PER_DAEMON)
async def test_create_is_executed_once_when_the_worker_dies_before_it_is_answered(
    tmp_path, index, report
):
    async with daemon(tmp_path) as running, _agent(running, _TRANSPORTS[index % 2]) as agent:
        for number in range(FAULTS_PER_DAEMON):
            running.inject("kill-spawned")
            await _create_once(running, agent, f"program-{number}", report)
            assert running.happened("kill-spawned")
        assert (await running.status())["takeovers"] == FAULTS_PER_DAEMON
        assert await running.end() == 0
        await running.check_nothing_left()


@rounds(6, 50, per_round=FAULTS_PER_DAEMON)
async def test_create_is_executed_once_when_the_worker_dies_at_any_moment_of_it(
    tmp_path, index, report
):
    async with daemon(tmp_path) as running, _agent(running, _TRANSPORTS[index % 2]) as agent:
        for number in range(FAULTS_PER_DAEMON):
            step = (index * FAULTS_PER_DAEMON + number) % 16
            running.inject("kill-spawning", _SPAWN_MAX_MS * step / 16)
            await _create_once(running, agent, f"program-{number}", report)
        assert await running.end() == 0
        await running.check_nothing_left()


def _agent(running: Daemon, transport: str):
    if transport == "socket":
        return socket_agent(running.socket)
    return stdio_agent(running.socket, running.env, None)


async def _create_once(running: Daemon, agent: Agent, name: str, report: Report) -> None:
    """Create a program that records its execution; check that it was executed once."""
    executions = Path(running.directory, name)
    before = trio.current_time()
    terminal = await agent.create("/bin/sh", "-c", f"echo $$ >> {executions}; echo {name}; exit 7")
    report.happened(_FAULT, trio.current_time() - before)
    assert (await agent.wait(terminal))["exitCode"] == 7
    assert (await agent.output(terminal))["output"] == f"{name}\n"
    listed = [info for info in await running.terminals() if name in info["command"]]
    assert [info["terminalId"] for info in listed] == [terminal]
    assert _lines(executions) == 1, "the program was executed more than once"
    await agent.release(terminal)


def _lines(path: Path) -> int:
    return len(path.read_text().splitlines())
