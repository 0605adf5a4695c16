"""Blocking calls in a thread, or on the event loop if the system cannot start a thread."""

from collections.abc import Callable
from typing import TypeVar

import trio

T = TypeVar("T")


async def run_blocking(
    work: Callable[[], T],
    *,
    abandon_on_cancel: bool = False,
    limiter: trio.CapacityLimiter | None = None,
) -> T:
    """Call `work`, which may block, in a thread; return its result.

    The other parameters are as in `trio.to_thread.run_sync`. If the system cannot start a thread,
    because the user's process limit is reached, `work` runs on the event loop and blocks it.
    """
    is_started = False

    def run() -> T:
        nonlocal is_started
        is_started = True
        return work()

    try:
        return await trio.to_thread.run_sync(
            run, abandon_on_cancel=abandon_on_cancel, limiter=limiter
        )
    except RuntimeError:
        if is_started:
            raise
    return work()
