"""The processes of one terminal, and the end of all of them.

A `Tree` signals exactly its own processes. `Trees` makes it from one or two ways to know them:
`subreaper.DescendantTree` everywhere, and `cgroup.CgroupTree` beside it where control groups can
be made. `end` is what kill means, for all of them.
"""

import signal
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Protocol, TypeVar

import trio

from acpterm.runtime.descriptors import EXHAUSTED, reserve

T = TypeVar("T")

_FIRST_POLL_S = 0.005
_LAST_POLL_S = 0.1
_RETRY_S = 0.05

Rlimits = tuple[tuple[int, int, int], ...]


class ProcessTree(Protocol):
    """The processes of one terminal, from before its first instruction until `close`.

    A child may be made ahead: then it has `started` some time before its program `begins`.
    """

    @property
    def cgroup(self) -> int | None:
        """A descriptor of the control group that the first child is to be made in, if any."""

    @property
    def join(self) -> str | None:
        """The file that a child made without `cgroup` writes `0` to, to be in the tree."""

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables that the first child needs in its environment, over all others."""

    @property
    def rlimits(self) -> Rlimits:
        """Limits (resource, soft, hard) that the first child needs, after all others."""

    def started(self, pid: int, started: float | None = None) -> None:
        """Record the first child: it is ours, alive or a zombie.

        `started`: its start time as `ProcStat.started`, if that is known.
        """

    def begins(self) -> None:
        """Record that the first child's program begins now: from now on there may be others."""

    def reaped(self, at: float | None = None) -> None:
        """Record that the first child was reaped, `at` a time of `processes.now`, or just now."""

    async def empty(self) -> bool:
        """Return whether no process of the tree runs any more; zombies do not.

        Raises `OSError` when that cannot be seen.
        """

    async def signal(self, number: int) -> None:
        """Signal every process of the tree, once. Raises `OSError` when they cannot be seen."""

    async def kill(self) -> None:
        """SIGKILL the tree until it is empty. Waits as long as that takes; can be cancelled.

        Raises no `OSError`: it tries again.
        """

    async def close(self) -> None:
        """Forget the tree, which is empty or given up."""


async def end(tree: ProcessTree, grace: float) -> None:
    """End the whole tree: SIGTERM, up to `grace` seconds to tidy up, then SIGKILL.

    Stopped processes are continued, so that SIGTERM reaches them. Returns when no process is
    left; cancelled, it leaves the rest running.
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
    """Do `step`, and again while the system refuses it.

    For want of a descriptor it is done again at once with some of the reserve: processes have to
    be found and ended even so.
    """
    while True:
        try:
            return await step()
        except OSError as error:
            if error.errno in EXHAUSTED:
                with suppress(OSError), reserve.lent():
                    return await step()
            await trio.sleep(_RETRY_S)
