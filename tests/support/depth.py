"""How many examples tests try, and how long they wait.

By default, Hypothesis tries few examples, and the same ones in each run, so that a new failure is
due to a change of the code or of the speed. `ACPTERM_THOROUGH=1`, which `make test-all` sets, tries
the usual number; tests with the marker `afresh` then also start processes as users do.
`ACPTERM_EXAMPLES=N`, which `make fuzz` sets, tries N times as many, and different examples in each
run.
"""

import os

THOROUGH = os.environ.get("ACPTERM_THOROUGH", "0") not in ("", "0")

EXAMPLES = int(os.environ.get("ACPTERM_EXAMPLES", "0"))

DEADLINE_S = 30.0
"""How long a test waits for an expected event: longer than any delay of a slow machine."""


def examples(count: int) -> int:
    """Return how many examples a test tries.

    This is `count` with `ACPTERM_THOROUGH=1`, and by default a fifth of it, but at least 20. With
    `ACPTERM_EXAMPLES=N`, it is N times `count`.
    """
    if EXAMPLES:
        return EXAMPLES * count
    return count if THOROUGH else max(20, count // 5)
