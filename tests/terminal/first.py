"""A pool in a process that is pid 1, as in a container: `python -m tests.terminal.first TRACKING`.

`test_pool` runs this module with `unshare`; the assertions are in this module.
"""

import os
import sys

import trio

from acpterm.keeper.startup import embedded_keeper
from acpterm.pty import processes
from acpterm.pty.program import Program
from acpterm.pty.tracking.trees import open_trees
from acpterm.terminal.pool import Pool
from tests.support.depth import DEADLINE_S


async def main(tracking):
    assert os.getpid() == 1
    async with (
        embedded_keeper() as keeper,
        open_trees(tracking, parent=keeper.pid) as trees,
        trio.open_nursery() as nursery,
    ):
        pool = Pool(keeper, trees)
        await nursery.start(pool.run)
        # An orphan that ends while the program of the terminal continues to run.
        line = "(setsid sh -c 'sleep 0.1' & echo $!); read x"
        program = Program(["/bin/sh", "-c", line], dict(os.environ), "/", 0o22)
        terminal = await pool.create(program)
        while not (text := terminal.text.text()):
            await terminal.wait_changed()
        orphan = int(text)
        with trio.fail_after(DEADLINE_S):
            while processes.identity(orphan) is not None:
                await trio.sleep(0.02)
        assert processes.identity(terminal.pid) is not None
        terminal._master.write(b"\n")
        assert (await terminal.wait_exited()).code in (0, 1)
        nursery.cancel_scope.cancel()


if __name__ == "__main__":
    trio.run(main, sys.argv[1])
