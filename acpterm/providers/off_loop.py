"""Calls of providers that access files, in threads: a file system may not answer for minutes.

A caller that is cancelled does not wait for its thread. If the thread has prepared a command, or
prepares one later, no caller gets the token of its clean-up: so the thread cleans up itself.
"""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from acpterm.providers.provider import Prepared
from acpterm.runtime.threads import run_blocking

T = TypeVar("T")

# Separate limiters: calls that hang in a dead file system must not use up the threads of others.
_prepare_threads: Final = trio.CapacityLimiter(16)
_clean_up_threads: Final = trio.CapacityLimiter(16)


async def look_up(work: Callable[[], T]) -> T:
    """Call `work`, which has no effects, in a thread; return its result."""
    return await run_blocking(work, abandon_on_cancel=True, limiter=_prepare_threads)


async def prepare(work: Callable[[], Prepared], undo: Callable[[str], None]) -> Prepared:
    """Call `work` in a thread; return its result.

    If the caller is cancelled, `undo` is called with the result's token, in a thread.
    """
    lock = threading.Lock()
    done: list[Prepared] = []
    is_abandoned = False

    def run() -> Prepared:
        prepared = work()
        with lock:
            done.append(prepared)
            is_ours = is_abandoned
        if is_ours and prepared.token is not None:
            undo(prepared.token)
        return prepared

    try:
        return await run_blocking(run, abandon_on_cancel=True, limiter=_prepare_threads)
    except trio.Cancelled:
        with lock:
            is_abandoned = True
            token = done[0].token if done else None
        if token is not None:
            # The thread had just ended.
            with trio.CancelScope(shield=True):
                await clean_up(lambda: undo(token))
        raise


async def clean_up(work: Callable[[], None]) -> None:
    """Call `work` in a thread. If the caller is cancelled, the thread continues."""
    await run_blocking(work, abandon_on_cancel=True, limiter=_clean_up_threads)
