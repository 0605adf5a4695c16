"""How often each fault is injected: the counts of CI, or those of `make faults`.

`ACPTERM_FAULTS=full` selects the latter, `ci` the former; a number replaces every count.
"""

import os

import pytest

_SELECTED = os.environ.get("ACPTERM_FAULTS", "").replace("ci", "")
FAULTS_PER_DAEMON = 3
"""The keeper gives up on a worker that dies five times in a minute."""


def rounds(ci: int, full: int, *, per_round: int = 1) -> pytest.MarkDecorator:
    """Parametrize `index` so that `per_round` faults a test make the wanted count in all."""
    count = full if _SELECTED == "full" else int(_SELECTED or ci)
    return pytest.mark.parametrize("index", range(-(-count // per_round)))
