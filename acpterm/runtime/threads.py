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
    """Call `work` in a thread, or here, blocking the loop, if no thread can be started."""
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
