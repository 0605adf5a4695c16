"""The ways in which tests wait for a condition: `poll`, and `poll_blocking` without trio."""

import time
from collections.abc import Callable
from typing import Any

import trio

from tests.support.depth import DEADLINE_S

_INTERVAL_S = 0.005


async def poll(
    check: Callable[[], Any], timeout_s: float = DEADLINE_S, interval_s: float = _INTERVAL_S
) -> Any:
    """Poll until `check` returns a value other than None and False; return that value."""
    with trio.fail_after(timeout_s):
        while (value := check()) is None or value is False:
            await trio.sleep(interval_s)
    return value


def poll_blocking(
    check: Callable[[], Any], timeout_s: float = DEADLINE_S, interval_s: float = _INTERVAL_S
) -> Any:
    """Poll like `poll`, in a test that is not async; raise TimeoutError."""
    deadline = time.monotonic() + timeout_s
    while (value := check()) is None or value is False:
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition did not become true in {timeout_s:g} s")
        time.sleep(interval_s)
    return value
