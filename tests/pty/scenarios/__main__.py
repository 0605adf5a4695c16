import sys

import trio

from tests.pty.scenarios import SCENARIOS, run_worker
from tests.pty.scenarios.harness import SKIPPED, SkippedError

if sys.argv[1] == "worker":
    trio.run(run_worker, *sys.argv[2:])
else:
    try:
        trio.run(SCENARIOS[sys.argv[1]])
    except SkippedError as reason:
        print(reason, file=sys.stderr)
        sys.exit(SKIPPED)
