"""The control experiment: the same load and the same checks without a fault."""

import pytest
import trio

from tests.faults.load import loaded

pytestmark = [pytest.mark.long, pytest.mark.timeout(90)]


async def test_output_is_complete_and_correct_without_a_fault(tmp_path, report):
    async with loaded(tmp_path, "control") as load:
        await trio.sleep(3)
        await load.answering()
        load.check_running()
        await load.check_pids()
    report.happened("none: the control")
    report.checked_bytes = load.checked_bytes
    report.longest_answer_s = load.longest_answer(0)
