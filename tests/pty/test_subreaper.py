import os
import sys
from contextlib import nullcontext

import pytest
import trio

from acpterm.pty import linux
from tests.pty.scenarios import SCENARIOS, STORM
from tests.support.bounded import bounds

pytestmark = pytest.mark.skipif(not linux.AVAILABLE, reason="subreapers are Linux's")


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
async def test_descendant_tree_scenario(name):
    command = [sys.executable, "-m", "tests.pty.scenarios", name]
    with bounds(STORM) if "uses_up" in name else nullcontext([]) as bound, trio.fail_after(30):
        done = await trio.run_process(
            [*bound, *command], capture_stderr=True, check=False, cwd=os.getcwd()
        )
    assert done.returncode == 0, done.stderr.decode()
