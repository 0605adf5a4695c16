"""Work that would hold the event loop up, done on it in slices, without a thread.

A thread is a process of the user's to the system: at the limit of those none can be started, and
this is when processes have to be found and killed.
"""

import time
from collections.abc import Iterable
from typing import Final, TypeVar

import trio

T = TypeVar("T")

SLICE_S: Final = 0.001


async def collect(steps: Iterable[T]) -> list[T]:
    """Return the items of `steps`, with a checkpoint at least each millisecond of work.

    A single step must take microseconds.
    """
    await trio.lowlevel.checkpoint()
    found: list[T] = []
    end = time.perf_counter() + SLICE_S
    for item in steps:
        found.append(item)
        if time.perf_counter() > end:
            await trio.lowlevel.checkpoint()
            end = time.perf_counter() + SLICE_S
    return found
