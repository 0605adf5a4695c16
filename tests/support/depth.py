"""How many examples tests try, and how long they wait.

Examples are the same in each run, so that a failure is due to a change, or to the time that
something takes. `ACPTERM_EXAMPLES=N`, which `make fuzz` sets, tries N times as many, and others in
each run. `ACPTERM_THOROUGH=1`, which `make test-all` sets, selects the usual maximum. Long tests
then also start processes as users do.
"""

import os

THOROUGH = os.environ.get("ACPTERM_THOROUGH", "0") not in ("", "0")

EXAMPLES = int(os.environ.get("ACPTERM_EXAMPLES", "0"))

DEADLINE_S = 30.0
"""How long a test waits for an expected event: longer than any delay of a slow machine."""


def examples(count: int) -> int:
    """Return how many examples Hypothesis tries: at most `count`, unless `EXAMPLES` is set."""
    if EXAMPLES:
        return EXAMPLES * count
    return count if THOROUGH else max(20, count // 5)
