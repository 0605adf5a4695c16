"""A tree known in both ways at once: by its control group, and by descent.

The control group holds whatever forks, exactly, until a process moves itself to another group: as
root, or where the group's directory is the user's own. Such a process is still known by descent.
"""

from collections.abc import Mapping
from typing import Final

from acpterm.pty.tracking.cgroup import CgroupTree
from acpterm.pty.tracking.subreaper import DescendantTree
from acpterm.pty.tracking.tree import Rlimits, retry_on_oserror


class CombinedTree:
    """One terminal's processes. See `tree.Tree`."""

    def __init__(self, group: CgroupTree, descent: DescendantTree) -> None:
        self._group: Final = group
        self._descent: Final = descent

    @property
    def cgroup(self) -> int | None:
        """The control group's descriptor."""
        return self._group.cgroup

    @property
    def join(self) -> str | None:
        """The file by which the control group is joined."""
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
        """Record that the first child's program begins now."""
        self._descent.begins()

    def reaped(self, at: float | None = None) -> None:
        """Record that the first child was reaped."""
        self._descent.reaped(at)

    async def empty(self) -> bool:
        """Return whether nothing is in the group, and nothing has left it."""
        return await self._group.empty() and await self._descent.empty()

    async def signal(self, number: int) -> None:
        """Signal each process in the group, and each that has left it."""
        inside = set(self._group.pids())
        await self._group.signal(number)
        await self._descent.signal(number, without=inside)

    async def kill(self) -> None:
        """Kill the group at once, and then what has left it."""
        while not await retry_on_oserror(self.empty):
            await self._group.kill()
            await self._descent.kill()

    async def close(self) -> None:
        """Forget the tree."""
        await self._descent.close()
        await self._group.close()
