"""The protocol of a process tree, which is all processes of one terminal; and how to end a tree.

`trees.Trees` creates the trees. A tree is a `descendant_tree.DescendantTree`, combined with a
`cgroup_tree.CgroupTree` if control groups can be created. A tree signals exactly its own processes.
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
    """All processes of one terminal. The *first child* is the terminal's program.

    A tree is created before its first child, which is created with `cgroup`, `environment` and
    `rlimits`. Order of calls: `begins` and `started`, in any order; `reaped`; `close`.
    """

    @property
    def cgroup(self) -> int | None:
        """A descriptor of the directory of the tree's control group; None without a group."""

    @property
    def join(self) -> str | None:
        """The file to which a process writes `0` to join the control group; or None."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables for the environment of the terminal's program, which override all others."""

    @property
    def rlimits(self) -> Rlimits:
        """Limits (resource, soft, hard) for the terminal's program, set after its other limits."""

    def started(self, pid: int, started: float | None = None) -> None:
        """Record that the program was created, with its pid.

        `started` is its start time, as in `ProcStat.started`; None if it is not known.
        """

    def begins(self) -> None:
        """Record that from now on the terminal's program may run, and start other processes."""

    def reaped(self, at: float | None = None) -> None:
        """Record that the program was reaped: at the `processes.now` time `at`, or just now."""

    async def empty(self) -> bool:
        """Return whether no process of the tree runs any more, not counting zombies.

        Raises `OSError` if the processes cannot be read.
        """

    async def signal(self, number: int) -> None:
        """Send the signal `number` to every process of the tree, once. Raises `OSError`."""

    async def kill(self) -> None:
        """Send SIGKILL to all processes of the tree until it is empty, however long that takes.

        Can be cancelled. Retries instead of raising `OSError`.
        """

    async def close(self) -> None:
        """Stop tracking the tree. Call this when it is empty, or its processes cannot be killed."""


async def end(tree: ProcessTree, grace: float) -> None:
    """End all processes of the tree: SIGTERM, and SIGKILL if some are left after `grace` seconds.

    Continues stopped processes, so that they act on SIGTERM. Returns when no process is left. On
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
    """Call `step` again until it does not raise `OSError`, and return its result.

    If no file descriptor is free, closes some of the reserve (`runtime.descriptors`) for the call,
    because processes must be found and killed even then.
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
    """Return the items of `steps`; let other tasks run after each millisecond of work.

    Producing one item must take only microseconds. Scans of processes run on the event loop and not
    in a thread: at the user's process limit no thread can be started, and exactly then processes
    must be found and killed.
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
