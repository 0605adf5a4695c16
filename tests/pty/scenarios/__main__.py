import sys

import trio

from tests.pty.scenarios import SCENARIOS, run_worker

if sys.argv[1] == "worker":
    trio.run(run_worker, *sys.argv[2:])
else:
    trio.run(SCENARIOS[sys.argv[1]])
