"""The ways in which tests wait for a condition: `poll`, and `poll_blocking` without trio."""

import time
from collections.abc import Callable, Sized
from typing import Any

import trio

from tests.support.depth import DEADLINE_S

_INTERVAL_S = 0.005


async def poll(
    check: Callable[[], Any], timeout_s: float = DEADLINE_S, interval_s: float = _INTERVAL_S
) -> Any:
    """Poll until `check` returns a value that is not None, False or empty; return the value.

    Raises `trio.TooSlowError` after `timeout_s`.
    """
    with trio.fail_after(timeout_s):
        while _is_missing(value := check()):
            await trio.sleep(interval_s)
    return value


def poll_blocking(
    check: Callable[[], Any], timeout_s: float = DEADLINE_S, interval_s: float = _INTERVAL_S
) -> Any:
    """Poll like `poll`, in a test that is not async. Raises `TimeoutError` after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while _is_missing(value := check()):
        if time.monotonic() > deadline:
            raise TimeoutError(f"the condition did not become true in {timeout_s:g} s")
        time.sleep(interval_s)
    return value


def _is_missing(value: Any) -> bool:
    """Return whether there is no value yet. 0 is a value, such as the exit status of a process."""
    return value is None or value is False or (isinstance(value, Sized) and not len(value))
