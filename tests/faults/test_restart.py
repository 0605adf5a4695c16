"""`acpterm restart` under full load: to the same version, and to a version that does not start."""

import subprocess
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
import trio

from tests.faults.counts import FAULTS_PER_DAEMON, rounds
from tests.faults.daemon import ACPTERM, Daemon
from tests.faults.latency import LatencyProcess, latency_process
from tests.faults.load import Load, loaded

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

_PAUSE_MAX_S = 1.0
_LATENCY_MAX_S = 2.0


@rounds(6, 50, per_round=FAULTS_PER_DAEMON)
async def test_restart_preserves_programs_and_delays_no_response_under_load(
    tmp_path, index, report
):
    async with loaded(tmp_path, f"restart-{index}") as load, latency(load) as answers:
        for _ in range(FAULTS_PER_DAEMON):
            await trio.sleep(load.random.uniform(0, _PAUSE_MAX_S))
            old, since = await load.daemon.worker(), time.monotonic()
            status, printed = await _restart(load.daemon)
            load.takeovers += 1
            assert status == 0, printed
            await load.answering()
            longest = await answers.longest(since)
            report.happened("`acpterm restart` under full load", longest)
            assert await load.daemon.worker() != old
            load.check_running()
            await load.check_pids()
            assert longest <= _LATENCY_MAX_S
    report.checked_bytes = load.checked_bytes


@pytest.mark.parametrize("fault", ["fail-always", "hang-always"])
async def test_restart_leaves_the_old_worker_when_the_new_one_does_not_start(
    tmp_path, fault, report
):
    async with loaded(tmp_path, fault) as load, latency(load) as answers:
        old, since = await load.daemon.worker(), time.monotonic()
        load.daemon.inject(fault)
        status, printed = await _restart(load.daemon)
        load.daemon.heal(fault)
        assert status != 0
        assert printed.strip(), "restart prints no reason for its failure"
        await load.answering()
        longest = await answers.longest(since)
        report.happened("`acpterm restart` to a version that does not start", longest)
        assert await load.daemon.worker() == old
        load.check_running()
        assert longest <= _LATENCY_MAX_S
        # A version that starts takes over.
        status, printed = await _restart(load.daemon)
        load.takeovers += 1
        assert status == 0, printed
    report.checked_bytes = load.checked_bytes


@asynccontextmanager
async def latency(load: Load) -> AsyncIterator[LatencyProcess]:
    """Measure the latency of responses during the block."""
    with latency_process(load.daemon.socket, load.daemon.directory) as process:
        await process.longest(time.monotonic() - 1)
        yield process


async def _restart(running: Daemon) -> tuple[int, str]:
    """Run `acpterm restart`; return its exit status and what it printed."""
    done = await trio.run_process(
        [*ACPTERM, "restart", "--socket", running.socket],
        env=running.env,
        capture_stdout=True,
        stderr=subprocess.STDOUT,
        check=False,
    )
    await running.status()
    return done.returncode, done.stdout.decode()
