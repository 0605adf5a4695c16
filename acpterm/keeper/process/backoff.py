"""When to start a worker again, after how many deaths."""

from __future__ import annotations

import time

DEATHS_MAX = 5
"""So many deaths within `WINDOW_S` are the end of it."""
WINDOW_S = 60.0
_DELAYS_S = (0.0, 0.1, 0.5, 2.0)


class Backoff:
    """Counts deaths."""

    def __init__(self) -> None:
        self._deaths: list[float] = []

    def died(self) -> float | None:
        """Count a death; return the seconds to wait before another start, or None to give up."""
        now = time.monotonic()
        self._deaths = [at for at in self._deaths if now - at < WINDOW_S] + [now]
        if len(self._deaths) >= DEATHS_MAX:
            return None
        return _DELAYS_S[min(len(self._deaths), len(_DELAYS_S)) - 1]

    def reset(self) -> None:
        """Forget all deaths."""
        self._deaths = []
