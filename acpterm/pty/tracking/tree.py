"""The interface `ProcessTree` to all processes of one terminal, and `end`, which ends them.

`trees.Trees` creates the trees. A tree is a `descendant_tree.DescendantTree`, combined with a
`cgroup_tree.CgroupTree` if control groups can be created. A tree signals exactly its own processes.
"""

import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import trio

from acpterm.pty import processes
from acpterm.pty.linux import ProcStat
from acpterm.runtime.descriptors import EXHAUSTED, reserve

T = TypeVar("T")

# `wait_empty` polls at intervals that grow from the first value to the second.
_FIRST_POLL_S = 0.005
_LAST_POLL_S = 0.1
# How long after SIGTERM it is first checked whether only interactive shells are left.
_HANG_UP_S = 0.05
_RETRY_S = 0.05
# A scan blocks the event loop for about this time before it lets other tasks run.
_SLICE_S = 0.001

Rlimits = tuple[tuple[int, int, int], ...]


class ProcessTree(Protocol):
    """All processes of one terminal. The *first child* is the terminal's program.

    The caller first creates the tree, then starts the first child with the tree's `cgroup`,
    `environment` and `rlimits`. It calls `begins` and `started`, in any order; then `reaped`; then
    `close`.
    """

    @property
    def cgroup(self) -> int | None:
        """A descriptor of the directory of the tree's control group.

        None if there is no control group, or if the program was started already.
        """

    @property
    def join(self) -> str | None:
        """The path of the file to which a process writes `0` to join the tree's control group.

        None if there is no control group.
        """

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the terminal's program gets; they override others of the same name."""

    @property
    def rlimits(self) -> Rlimits:
        """Limits (resource, soft, hard) that the program gets.

        They override the program's other limits on the same resources.
        """

    def started(self, pid: int, started: float | None = None, session: int | None = None) -> None:
        """Record that the program was started, with its pid.

        `started` is its start time, as in `ProcStat.started`; None if it is not known. `session` is
        the id of its session, whose leader is not part of the tree; None if the program leads it.
        """

    def begins(self) -> None:
        """Record that from now on the terminal's program may run, and may start processes."""

    def reaped(self, at: float | None = None, orphans: Collection[int] | None = None) -> None:
        """Record that the program was reaped at the time `at`; None means now.

        `at` is a time as `processes.now` returns it. `orphans` are the pids of all orphans then,
        of any terminal; None if unknown.
        """

    def session_ended(self) -> None:
        """Record that the leader of the session was reaped."""

    def is_empty(self) -> bool | None:
        """Return whether no process of the tree runs any more, not counting zombies.

        None if only `members` can tell. Raises `OSError` if the processes cannot be read.
        """

    async def members(self) -> list[ProcStat]:
        """Return the running processes of the tree. Raises `OSError` if they cannot be read."""

    async def signal(self, number: int) -> None:
        """Send the signal `number` once to every process of the tree.

        Raises `OSError` if the processes cannot be read or signalled.
        """

    async def kill(self) -> None:
        """Send SIGKILL to all processes of the tree until it is empty, however long that takes.

        Can be cancelled. After an `OSError`, tries again instead of raising it.
        """

    async def close(self) -> None:
        """Stop tracking the tree. Call this when it is empty, or if its processes do not end."""


async def empty(tree: ProcessTree) -> bool:
    """Return whether no process of the tree runs any more, as `is_empty` or `members` finds.

    Raises `OSError` if the processes cannot be read.
    """
    await trio.lowlevel.checkpoint()
    is_empty = tree.is_empty()
    return not await tree.members() if is_empty is None else is_empty


async def end(tree: ProcessTree, grace: float) -> None:
    """End all processes of the tree: SIGTERM, and SIGKILL if some are left after `grace` seconds.

    Sends SIGCONT, too, so that stopped processes act on SIGTERM. Interactive shells, which ignore
    SIGTERM, get SIGHUP when only they are left. Returns when no process is left. If cancelled, the
    remaining processes keep running.
    """
    if await retry_on_oserror(partial(empty, tree)):
        return
    await retry_on_oserror(partial(tree.signal, signal.SIGTERM))
    await retry_on_oserror(partial(tree.signal, signal.SIGCONT))
    pause = _HANG_UP_S
    with trio.move_on_after(grace):
        while True:
            with trio.move_on_after(pause):
                await wait_empty(tree)
                return
            await retry_on_oserror(partial(_hang_up, tree))
            pause *= 2  # each look reads all processes of the system
    await tree.kill()


async def _hang_up(tree: ProcessTree) -> None:
    """Send SIGHUP to the processes of the tree if all of them are interactive shells."""
    left = await tree.members()
    # A shell passes SIGHUP on to its jobs, which must have their time to act on SIGTERM.
    if all(processes.is_interactive_shell(process.pid) for process in left):
        for process in left:
            processes.send(process, signal.SIGHUP)


async def wait_empty(tree: ProcessTree) -> None:
    """Wait until no process of the tree runs any more."""
    pause = _FIRST_POLL_S
    while not await retry_on_oserror(partial(empty, tree)):
        await trio.sleep(pause)
        pause = min(2 * pause, _LAST_POLL_S)


async def retry_on_oserror(step: Callable[[], Awaitable[T]]) -> T:
    """Call `step` until it does not raise `OSError`; return its result.

    If no file descriptor is free, closes some of the reserved descriptors (`runtime.descriptors`)
    during the next call, because processes must be found and killed even then.
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

    Each item must take only microseconds to produce. Scans of processes run on the event loop and
    not in a thread: when the user's process limit is reached, no thread can be started, but
    processes must be found and killed.
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
