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
    """Return the result of `work`, which may block: see `trio.to_thread.run_sync`.

    A thread counts as one of the user's processes. At the limit of those none can be started. Then
    the work runs here: blocking the event loop is better than not doing the work.
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
