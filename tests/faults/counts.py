"""How often each fault is injected, in CI and by `make faults`.

`ACPTERM_FAULTS=full` selects the latter, `ci` the former; a number replaces every count.
"""

import os

import pytest

_SELECTED = os.environ.get("ACPTERM_FAULTS", "").replace("ci", "")
FAULTS_PER_DAEMON = 3
"""The keeper gives up on a worker that dies five times in a minute."""


def rounds(ci: int, full: int, *, per_round: int = 1) -> pytest.MarkDecorator:
    """Parametrize `index` so that all tests together inject the wanted count of faults."""
    count = full if _SELECTED == "full" else int(_SELECTED or ci)
    return pytest.mark.parametrize("index", range(-(-count // per_round)))
