"""Which processes are a terminal's, and the end of all of them.

A `Tree` knows its processes exactly and can signal each of them and nobody else. Two kinds:
`cgroup.CgroupTree`, where this process may make control groups, and `subreaper.ProcessTree`
everywhere else. `end` is what kill means, for both.
"""

import signal
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Protocol, TypeVar

import trio

T = TypeVar("T")

# Seconds between two looks whether a tree has ended: the first, and at most.
_FIRST_LOOK = 0.005
_LAST_LOOK = 0.1
# Seconds until what the system refused is tried again.
_AGAIN = 0.05


class Tree(Protocol):
    """The processes of one terminal, from before its first instruction until `close`.

    A child may be made ahead: then it has `started` some time before its program `begins`.
    """

    @property
    def cgroup(self) -> int | None:
        """A descriptor of the control group that the first child is to be made in, if any."""

    @property
    def join(self) -> str | None:
        """The file that a child made without `cgroup` writes `0` to, to be in the tree."""

    def started(self, pid: int) -> None:
        """Learn the first child's pid: it is ours, alive or a zombie."""

    def begins(self) -> None:
        """Learn that the first child's program begins now: from now on there may be others."""

    def reaped(self) -> None:
        """Learn that the first child's pid is no longer ours."""

    async def empty(self) -> bool:
        """Whether no process of the tree runs any more; zombies do not.

        Raises `OSError` when it cannot be seen.
        """

    async def signal(self, number: int) -> None:
        """Signal every process of the tree, once. Raises `OSError` when they cannot be seen."""

    async def kill(self) -> None:
        """SIGKILL the tree until it is empty. Waits as long as that takes; can be cancelled.

        Raises no `OSError`: it tries again.
        """

    async def close(self) -> None:
        """Forget the tree, which is empty or given up."""


async def end(tree: Tree, grace: float) -> None:
    """End the whole tree: SIGTERM, up to `grace` seconds to tidy up, then SIGKILL.

    Stopped processes are continued, to hear the SIGTERM. Returns when nobody is left; cancelled,
    it leaves what is left running.
    """
    if await insist(tree.empty):
        return
    await insist(partial(tree.signal, signal.SIGTERM))
    await insist(partial(tree.signal, signal.SIGCONT))
    with trio.move_on_after(grace):
        await wait_empty(tree)
        return
    await tree.kill()


async def wait_empty(tree: Tree) -> None:
    """Wait until no process of the tree runs any more."""
    pause = _FIRST_LOOK
    while not await insist(tree.empty):
        await trio.sleep(pause)
        pause = min(2 * pause, _LAST_LOOK)


async def insist(step: Callable[[], Awaitable[T]]) -> T:
    """Do `step`, and again while the system refuses it: for want of a descriptor, as a rule.

    Whoever has processes to end has to go on; others give back what is wanted here.
    """
    while True:
        try:
            return await step()
        except OSError:
            await trio.sleep(_AGAIN)
