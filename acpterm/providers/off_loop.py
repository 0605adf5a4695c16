"""Runs functions that access files: in threads, so that they do not block the event loop.

A file system may not answer for minutes. So if a caller is cancelled, it does not wait for its
thread. If the thread prepares a command, the cancelled caller never gets the token that is needed
to clean up after the command. So the command is cleaned up as soon as the thread has prepared it.
"""

import threading
from collections.abc import Callable
from typing import Final, TypeVar

import trio

from acpterm.providers.provider import Prepared
from acpterm.runtime.threads import run_blocking

T = TypeVar("T")

# Separate limiters, so that calls of one kind that hang in a dead file system leave threads for the
# other kind.
_prepare_threads: Final = trio.CapacityLimiter(16)
_clean_up_threads: Final = trio.CapacityLimiter(16)


async def look_up(work: Callable[[], T]) -> T:
    """Call `work`, without side effects, in a thread; when cancelled, leave it behind."""
    return await run_blocking(work, abandon_on_cancel=True, limiter=_prepare_threads)


async def prepare(work: Callable[[], Prepared], undo: Callable[[str], None]) -> Prepared:
    """Call `work` in a thread; if cancelled, undo its result as soon as it has returned."""
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
            # `work` returned before the cancellation, so the thread did not call `undo`.
            with trio.CancelScope(shield=True):
                await clean_up(lambda: undo(token))
        raise


async def clean_up(work: Callable[[], None]) -> None:
    """Call `work` in a thread, which continues when the caller is cancelled."""
    await run_blocking(work, abandon_on_cancel=True, limiter=_clean_up_threads)
