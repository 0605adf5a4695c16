"""SIGKILL of the worker, at random times and during the takeover, under full load."""

import os
import signal

import pytest
import trio

from tests.faults.counts import FAULTS_PER_DAEMON, rounds
from tests.faults.load import loaded

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

_PAUSE_MAX_S = 1.5
_TAKEOVER_MAX_S = 0.8
_DOUBLE_FAULTS_PER_DAEMON = 2


@rounds(12, 200, per_round=FAULTS_PER_DAEMON)
async def test_programs_output_and_waits_survive_when_the_worker_is_killed(tmp_path, index, report):
    async with loaded(tmp_path, f"killed-{index}") as load:
        for _ in range(FAULTS_PER_DAEMON):
            await trio.sleep(load.random.uniform(0, _PAUSE_MAX_S))
            killed = await load.kill_worker()
            load.takeovers += 1
            report.happened("SIGKILL of the worker under full load", await load.answering())
            assert await load.daemon.worker() != killed
            load.check_running()
            await load.check_pids()
    report.checked_bytes = load.checked_bytes
    report.longest_answer_s = load.longest_answer(0)


@rounds(4, 50, per_round=_DOUBLE_FAULTS_PER_DAEMON)
async def test_programs_output_and_waits_survive_when_the_successor_is_killed_too(
    tmp_path, index, report
):
    async with loaded(tmp_path, f"twice-{index}") as load:
        for _ in range(_DOUBLE_FAULTS_PER_DAEMON):
            await trio.sleep(load.random.uniform(0, _PAUSE_MAX_S))
            killed = await load.kill_worker()
            successor = await load.daemon.successor({killed})
            await trio.sleep(load.random.uniform(0, _TAKEOVER_MAX_S))
            os.kill(successor, signal.SIGKILL)
            report.happened("SIGKILL of the worker during a take-over", await load.answering())
            status = await load.daemon.status()
            assert status["workerPid"] not in (killed, successor)
            # The killed successor counts if it had begun to serve.
            assert status["takeovers"] - load.takeovers in (1, 2)
            load.takeovers = status["takeovers"]
            load.check_running()
            await load.check_pids()
    report.checked_bytes = load.checked_bytes
    report.longest_answer_s = load.longest_answer(0)
