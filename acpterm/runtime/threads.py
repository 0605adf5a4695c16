"""Blocking calls in a thread, or without one where the system starts no more."""

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
    """Return what `work` returns, which may block: see `trio.to_thread.run_sync`.

    A thread is one of the user's processes. At their limit none can be started, and the work is
    done right here: the event loop stands still for as long as it takes, which is better than not
    to do it.
    """
    begun = False

    def begin() -> T:
        nonlocal begun
        begun = True
        return work()

    try:
        return await trio.to_thread.run_sync(
            begin, abandon_on_cancel=abandon_on_cancel, limiter=limiter
        )
    except RuntimeError:
        if begun:
            raise
    return work()
