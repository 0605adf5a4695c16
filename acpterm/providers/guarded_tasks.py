"""Runs background tasks of providers: an error in one is logged, and does not end other tasks.

A provider's tasks depend on other hosts, on commands and on free file descriptors. Without a guard,
an exception in one of them would cancel all tasks of the daemon, and end all its terminals.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

_PAUSE_S: Final = 1.0
_PAUSE_MAX_S: Final = 60.0

_log = structlog.get_logger("acpterm.provider")


async def run_guarded(
    name: str, work: Callable[..., Awaitable[object]], *arguments: object
) -> None:
    """Run `work(*arguments)` once. Log an error, with the task's `name`, instead of raising it."""
    await _ends_well(name, work, *arguments)


async def keep_running(
    name: str, work: Callable[..., Awaitable[object]], *arguments: object
) -> None:
    """Run `work` until it returns; log an error, and run it again after 1 s to 60 s."""
    pause = _PAUSE_S
    while not await _ends_well(name, work, *arguments):
        await trio.sleep(pause)
        pause = min(2 * pause, _PAUSE_MAX_S)


async def _ends_well(name: str, work: Callable[..., Awaitable[object]], *arguments: object) -> bool:
    has_failed = False
    try:
        await work(*arguments)
    # The error may be in a group with a cancellation, which must propagate.
    except* Exception as errors:  # noqa: BLE001  whatever has failed, the daemon continues
        has_failed = True
        _log.error("a background task of a provider has failed", task=name, exc_info=errors)
    return not has_failed
