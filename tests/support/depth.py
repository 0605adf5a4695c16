"""How deep the tests go, and how long they wait.

`ACPTERM_THOROUGH=1`: as deep as they can, as `make test-all` does.
"""

import os

THOROUGH = os.environ.get("ACPTERM_THOROUGH", "0") not in ("", "0")

DEADLINE_S = 30.0
"""How long a test waits for what has to come: only a hang, on no machine a delay, takes longer."""


def examples(count: int) -> int:
    """Say how many examples hypothesis is to try, of `count` that it may: each run has others."""
    return count if THOROUGH else max(20, count // 5)
