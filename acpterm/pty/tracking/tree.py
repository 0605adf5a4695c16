"""The processes of one terminal, and how all of them are ended.

A `ProcessTree` signals exactly its own processes. `Trees` creates it from one or two ways to track
them: `descendant_tree.DescendantTree` on every system, combined with `cgroup_tree.CgroupTree` if
control groups can be created. `end` implements kill for all of them.
"""

import signal
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import trio

from acpterm.runtime.descriptors import EXHAUSTED, reserve

T = TypeVar("T")

_FIRST_POLL_S = 0.005
_LAST_POLL_S = 0.1
_RETRY_S = 0.05
# The event loop is blocked for at most this time by a scan.
_SLICE_S = 0.001

Rlimits = tuple[tuple[int, int, int], ...]


class ProcessTree(Protocol):
    """The processes of one terminal, from before its first instruction until `close`.

    A child may be created in advance: then `started` is called some time before `begins`.
    """

    @property
    def cgroup(self) -> int | None:
        """A descriptor of the control group in which to create the first child, if any."""

    @property
    def join(self) -> str | None:
        """The file to which a child created without `cgroup` writes `0` to join the tree."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the first child needs in its environment; they override all others."""

    @property
    def rlimits(self) -> Rlimits:
        """Limits (resource, soft, hard) that the first child needs, set after all others."""

    def started(self, pid: int, started: float | None = None) -> None:
        """Record the first child, which is not reaped yet.

        `started` is its start time as in `ProcStat.started`, if known.
        """

    def begins(self) -> None:
        """Record that the first child's program starts now, and may start other processes."""

    def reaped(self, at: float | None = None) -> None:
        """Record that the first child was reaped: at the `processes.now` time `at`, or now."""

    async def empty(self) -> bool:
        """Return whether no process of the tree runs any more. Zombies do not count.

        Raises `OSError` if the processes cannot be read.
        """

    async def signal(self, number: int) -> None:
        """Signal every process of the tree, once. Raises `OSError` if they cannot be read."""

    async def kill(self) -> None:
        """SIGKILL the tree until it is empty, however long that takes; can be cancelled.

        Retries instead of raising `OSError`.
        """

    async def close(self) -> None:
        """Forget the tree, which is empty or was given up."""


async def end(tree: ProcessTree, grace: float) -> None:
    """End the whole tree: SIGTERM, then SIGKILL after up to `grace` seconds.

    Continues stopped processes, so that SIGTERM reaches them. Returns when no process is left. On
    cancellation the remaining processes keep running.
    """
    if await retry_on_oserror(tree.empty):
        return
    await retry_on_oserror(partial(tree.signal, signal.SIGTERM))
    await retry_on_oserror(partial(tree.signal, signal.SIGCONT))
    with trio.move_on_after(grace):
        await wait_empty(tree)
        return
    await tree.kill()


async def wait_empty(tree: ProcessTree) -> None:
    """Wait until no process of the tree runs any more."""
    pause = _FIRST_POLL_S
    while not await retry_on_oserror(tree.empty):
        await trio.sleep(pause)
        pause = min(2 * pause, _LAST_POLL_S)


async def retry_on_oserror(step: Callable[[], Awaitable[T]]) -> T:
    """Return the result of `step`, which is repeated as long as it raises `OSError`.

    If no descriptor is left, repeats it at once with some descriptors of the reserve: processes
    must be found and killed even then.
    """
    while True:
        try:
            return await step()
        except OSError as error:
            if error.errno in EXHAUSTED:
                with suppress(OSError), reserve.lent():
                    return await step()
            await trio.sleep(_RETRY_S)


async def collect(steps: Iterable[T]) -> list[T]:
    """Return the items of `steps`, with a checkpoint after each millisecond of work.

    Each step must take only microseconds. A scan runs on the event loop, not in a thread, because a
    thread counts as one of the user's processes: at the limit of those none can be started, and
    this is when processes must be found and killed.
    """
    await trio.lowlevel.checkpoint()
    found: list[T] = []
    end = time.perf_counter() + _SLICE_S
    for item in steps:
        found.append(item)
        if time.perf_counter() > end:
            await trio.lowlevel.checkpoint()
            end = time.perf_counter() + _SLICE_S
    return found
