"""How many examples tests try, and how long they wait.

`ACPTERM_DEPTH` is `quick` (by default), `ci` or `full`; `make test-all` sets it. At the first two,
Hypothesis tries few examples, and the same ones in each run, so that a new failure is due to a
change of the code or of the speed. At the depth `full`, it tries the usual number.
`ACPTERM_EXAMPLES=N`, which `make fuzz` sets, tries N times as many, and different examples in each
run.
"""

import os

DEPTH = os.environ.get("ACPTERM_DEPTH", "quick")

EXAMPLES = int(os.environ.get("ACPTERM_EXAMPLES", "0"))

DEADLINE_S = 30.0
"""How long a test waits for an expected event: longer than any delay of a slow machine."""


def examples(count: int) -> int:
    """Return how many examples a test tries.

    This is `count` at the depth `full`, and otherwise a fifth of it, but at least 20. With
    `ACPTERM_EXAMPLES=N`, it is N times `count`.
    """
    if EXAMPLES:
        return EXAMPLES * count
    return count if DEPTH == "full" else max(20, count // 5)
