"""Measures how long something takes on a busy machine."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import trio


@asynccontextmanager
async def stopwatch(period: float = 0.02) -> AsyncIterator[list[float]]:
    """Yield parts of the block's seconds, but not those in which this process cannot run."""
    # If only the measured process cannot run, its time counts: it could also be blocked.
    parts: list[float] = []

    async def count() -> None:
        while True:
            began = time.monotonic()
            await trio.sleep(period)
            parts.append(min(time.monotonic() - began, 2 * period))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(count)
        yield parts
        nursery.cancel_scope.cancel()
