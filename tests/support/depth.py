"""How deep the tests go. `ACPTERM_THOROUGH=1`: as deep as they can, as `make test-all` does."""

import os

THOROUGH = os.environ.get("ACPTERM_THOROUGH", "0") not in ("", "0")


def examples(count: int) -> int:
    """Say how many examples hypothesis is to try, of `count` that it may: each run has others."""
    return count if THOROUGH else max(20, count // 5)
