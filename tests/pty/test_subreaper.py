import os
import sys

import pytest
import trio

from acpterm.pty import linux
from tests.pty.scenarios import SCENARIOS

pytestmark = pytest.mark.skipif(not linux.AVAILABLE, reason="subreapers are Linux's")


@pytest.mark.long
@pytest.mark.parametrize("name", SCENARIOS)
async def test_a_tree_by_descent(name):
    with trio.fail_after(20):
        done = await trio.run_process(
            [sys.executable, "-m", "tests.pty.scenarios", name],
            capture_stderr=True,
            check=False,
            cwd=os.getcwd(),
        )
    assert done.returncode == 0, done.stderr.decode()
