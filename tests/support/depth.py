"""How many examples tests try, and how long they wait.

`ACPTERM_THOROUGH=1`, which `make test-all` sets, selects the maximum.
"""

import os

THOROUGH = os.environ.get("ACPTERM_THOROUGH", "0") not in ("", "0")

DEADLINE_S = 30.0
"""How long a test waits for an expected event: longer than any delay of a slow machine."""


def examples(count: int) -> int:
    """Return how many examples, at most `count`, hypothesis tries. They differ in each run."""
    return count if THOROUGH else max(20, count // 5)
