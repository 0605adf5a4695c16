"""Scenarios of process trees, each for its own process: a subreaper cannot stop being one.

`python -m tests.pty.scenarios NAME` runs a scenario, with its assertions. The modules import
little, so that these processes start quickly.
"""

from tests.pty.scenarios import descent
from tests.pty.scenarios.harness import SCENARIOS
from tests.pty.scenarios.tracking import STORM, run_worker

__all__ = ["SCENARIOS", "STORM", "descent", "run_worker"]
