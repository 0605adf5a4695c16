"""Pools for tests, each with a keeper of its own."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import trio

from acpterm.keeper.startup import embedded_keeper
from acpterm.pty.tracking.trees import open_trees
from acpterm.terminal.pool import Pool


@asynccontextmanager
async def running_pool(tracking: Any = "auto", **settings: Any) -> AsyncIterator[Pool]:
    """Run a pool until the end of the block."""
    async with (
        embedded_keeper() as keeper,
        open_trees(tracking, parent=keeper.pid) as trees,
        trio.open_nursery() as nursery,
    ):
        pool = Pool(keeper, trees, **settings)
        await nursery.start(pool.run)
        yield pool
        nursery.cancel_scope.cancel()
