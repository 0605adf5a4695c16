"""Run each scenario of process trees in a process of its own."""

import os
import sys
from contextlib import nullcontext

import pytest
import trio

from acpterm.pty import linux
from tests.pty.scenarios import SCENARIOS, STORM
from tests.pty.scenarios.harness import SKIPPED
from tests.support.bounded import bounds
from tests.support.depth import DEADLINE_S

pytestmark = pytest.mark.skipif(not linux.AVAILABLE, reason="only Linux has subreapers")


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
async def test_scenario_passes_in_a_process_of_its_own(name):
    command = [sys.executable, "-m", "tests.pty.scenarios", name]
    # A scenario makes some hundred processes.
    limit = trio.fail_after(2 * DEADLINE_S)
    with bounds(STORM) if "uses_up" in name else nullcontext([]) as bound, limit:
        done = await trio.run_process(
            [*bound, *command], capture_stderr=True, check=False, cwd=os.getcwd()
        )
    if done.returncode == SKIPPED:
        pytest.skip(done.stderr.decode().strip())
    assert done.returncode == 0, done.stderr.decode()
