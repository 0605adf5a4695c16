"""SIGSTOP of the worker: programs wait on their full rings, and nothing is lost."""

import os
import signal

import pytest
import trio

from tests.faults.load import loaded

pytestmark = [pytest.mark.long, pytest.mark.timeout(90)]

_STOPPED_S = 5.0
_LAST_S = 2.0


@pytest.mark.parametrize("index", range(2))
async def test_programs_wait_and_nothing_is_lost_while_the_worker_is_stopped(
    tmp_path, index, report
):
    async with loaded(tmp_path, f"stopped-{index}") as load:
        worker = await load.kill_worker(signal.SIGSTOP)
        try:
            await trio.sleep(_STOPPED_S - _LAST_S)
            before = load.progress()
            await trio.sleep(_LAST_S)
            after = load.progress()
        finally:
            os.kill(worker, signal.SIGCONT)
        report.happened("SIGSTOP of the worker for 5 s", await load.answering())
        # Only the slow program has free space in its ring.
        assert before[:-1] == after[:-1]
        assert after[-1] > before[-1]
        assert await load.daemon.worker() == worker
        load.check_running()
    report.checked_bytes = load.checked_bytes
