"""A tree that is tracked in both ways at once: by its control group, and by descent.

The control group contains every forked process exactly, until a process moves itself to another
group: as root, or where the group's directory belongs to the user. Descent still tracks such a
process.
"""

from collections.abc import Mapping
from typing import Final

from acpterm.pty.tracking.cgroup_tree import CgroupTree
from acpterm.pty.tracking.descendant_tree import DescendantTree
from acpterm.pty.tracking.tree import Rlimits, retry_on_oserror


class CombinedTree:
    """One terminal's processes. See `tree.ProcessTree`."""

    def __init__(self, group: CgroupTree, descent: DescendantTree) -> None:
        self._group: Final = group
        self._descent: Final = descent

    @property
    def cgroup(self) -> int | None:
        """The control group's descriptor."""
        return self._group.cgroup

    @property
    def join(self) -> str | None:
        """The file by which a child joins the control group."""
        return self._group.join

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that mark the tree's processes."""
        return self._descent.environment

    @property
    def rlimits(self) -> Rlimits:
        """The limit that marks the tree's processes."""
        return self._descent.rlimits

    def started(self, pid: int, started: float | None = None) -> None:
        """Record the first child."""
        self._group.started(pid, started)
        self._descent.started(pid, started)

    def begins(self) -> None:
        """Record that the first child's program starts now."""
        self._descent.begins()

    def reaped(self, at: float | None = None) -> None:
        """Record that the first child was reaped."""
        self._descent.reaped(at)

    async def empty(self) -> bool:
        """Return whether no process is in the group, and none that left it runs."""
        return await self._group.empty() and await self._descent.empty()

    async def signal(self, number: int) -> None:
        """Signal each process in the group, and each process that has left it."""
        inside = set(self._group.pids())
        await self._group.signal(number)
        await self._descent.signal(number, without=inside)

    async def kill(self) -> None:
        """Kill the group, then the processes that have left it."""
        while not await retry_on_oserror(self.empty):
            await self._group.kill()
            await self._descent.kill()

    async def close(self) -> None:
        """Forget the tree."""
        await self._descent.close()
        await self._group.close()
