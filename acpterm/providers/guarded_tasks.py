"""Guards of the providers' background tasks: a failure of one is logged, and ends nothing else.

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
    """Run `work(*arguments)` once. Does not raise: an error is logged, with the task's `name`."""
    await _ends_well(name, work, *arguments)


async def keep_running(
    name: str, work: Callable[..., Awaitable[object]], *arguments: object
) -> None:
    """Run `work(*arguments)` until it returns; start it again, after a pause, when it raises.

    Does not raise: each error is logged, with the task's `name`.
    """
    pause = _PAUSE_S
    while not await _ends_well(name, work, *arguments):
        await trio.sleep(pause)
        pause = min(2 * pause, _PAUSE_MAX_S)


async def _ends_well(name: str, work: Callable[..., Awaitable[object]], *arguments: object) -> bool:
    """Run `work(*arguments)`; return whether it has not raised."""
    has_failed = False
    try:
        await work(*arguments)
    # A group may have a cancellation as well, which continues.
    except* Exception as errors:  # noqa: BLE001  whatever has failed, the daemon continues
        has_failed = True
        _log.error("a background task of a provider has failed", task=name, exc_info=errors)
    return not has_failed
