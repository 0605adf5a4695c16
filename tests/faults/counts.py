"""How often each fault is injected, in CI and by `make faults`.

`ACPTERM_FAULTS=full` selects the latter, `ci` the former; a number replaces every count.
"""

import os

import pytest

_SELECTED = os.environ.get("ACPTERM_FAULTS", "").replace("ci", "")
FAULTS_PER_DAEMON = 3
"""How many faults a test injects into one daemon.

The keeper gives up on a worker that dies five times in a minute.
"""


def rounds(ci: int, full: int, *, per_round: int = 1) -> pytest.MarkDecorator:
    """Return a mark that repeats a test until it has injected the selected number of faults.

    The number is `ci`, `full`, or that of `ACPTERM_FAULTS`. Each run of the test, which gets its
    own `index`, injects `per_round` faults.
    """
    count = full if _SELECTED == "full" else int(_SELECTED or ci)
    return pytest.mark.parametrize("index", range(-(-count // per_round)))
