"""A program exits while no worker runs: its status and its last output are retained."""

import pytest
import trio

from tests.faults.counts import FAULTS_PER_DAEMON, rounds
from tests.faults.daemon import until
from tests.faults.load import loaded

pytestmark = [pytest.mark.long, pytest.mark.timeout(150)]

_DELAY_S = 1.0


@rounds(6, 50, per_round=FAULTS_PER_DAEMON)
async def test_exit_status_and_last_output_are_retained_when_no_worker_runs(
    tmp_path, index, report
):
    async with loaded(tmp_path, f"ends-{index}", full_speed=2 * FAULTS_PER_DAEMON) as load:
        for number in range(FAULTS_PER_DAEMON):
            await trio.sleep(load.random.uniform(0, 0.5))
            ending = load.programs[2 * number : 2 * number + 2]
            load.daemon.inject("delay", _DELAY_S)
            worker = await load.daemon.worker()
            await load.kill_worker()
            load.takeovers += 1
            successor = await load.daemon.successor({worker})
            for program in ending:
                program.stop()
            for program in ending:
                # A program may be blocked on its full PTY until the successor reads.
                with trio.move_on_after(_DELAY_S / 2):
                    await until(lambda p=program: not p.is_running(), 5, "it does not end")
            report.happened("a program ends while no worker runs", await load.answering())
            assert await load.daemon.worker() == successor
            for program in ending:
                await program.check_end()
    report.checked_bytes = load.checked_bytes
