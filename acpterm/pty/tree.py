"""Which processes are a terminal's, and the end of all of them.

A `Tree` knows its processes exactly and can signal each of them and nobody else. Two kinds:
`cgroup.CgroupTree`, where this process may make control groups, and `subreaper.ProcessTree`
everywhere else. `end` is what kill means, for both.
"""

import signal
from typing import Protocol

import trio

# Seconds between two looks whether a tree has ended: the first, and at most.
_FIRST_LOOK = 0.005
_LAST_LOOK = 0.1


class Tree(Protocol):
    """The processes of one terminal, from before its first instruction until `close`."""

    @property
    def cgroup(self) -> int | None:
        """A descriptor of the control group that the first child is to be made in, if any."""

    @property
    def join(self) -> str | None:
        """The file that a child made without `cgroup` writes `0` to, to be in the tree."""

    def started(self, pid: int) -> None:
        """Learn the first child's pid: it is ours, alive or a zombie."""

    def reaped(self) -> None:
        """Learn that the first child's pid is no longer ours."""

    async def empty(self) -> bool:
        """Whether no process of the tree runs any more; zombies do not."""

    async def signal(self, number: int) -> None:
        """Signal every process of the tree, once."""

    async def kill(self) -> None:
        """SIGKILL the tree until it is empty. Waits as long as that takes; can be cancelled."""

    async def close(self) -> None:
        """Forget the tree, which is empty or given up."""


async def end(tree: Tree, grace: float) -> None:
    """End the whole tree: SIGTERM, up to `grace` seconds to tidy up, then SIGKILL.

    Stopped processes are continued, to hear the SIGTERM. Returns when nobody is left; cancelled,
    it leaves what is left running.
    """
    if await tree.empty():
        return
    await tree.signal(signal.SIGTERM)
    await tree.signal(signal.SIGCONT)
    with trio.move_on_after(grace):
        await wait_empty(tree)
        return
    await tree.kill()


async def wait_empty(tree: Tree) -> None:
    """Wait until no process of the tree runs any more."""
    pause = _FIRST_LOOK
    while not await tree.empty():
        await trio.sleep(pause)
        pause = min(2 * pause, _LAST_LOOK)
