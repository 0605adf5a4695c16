"""The trees of this process: which of the two kinds there is, and what keeps it going.

One `Trees` a process, shared by all who start programs in it: with the subreaper, orphans are
children of the process as a whole, and only somebody who knows all of its trees and of its own
children can tell whose they are.
"""

import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager

import trio

from acpterm.pty.cgroup import Cgroups
from acpterm.pty.subreaper import Subreaper
from acpterm.pty.tree import Tree


class TrackingError(Exception):
    """The way to know a terminal's processes that was asked for cannot be had here."""


class Trees:
    """Makes trees of processes.

    `tracking`: `cgroup`, `subreaper`, or `auto` for the first that works. Raises `TrackingError`
    when there are no control groups and they were asked for.
    """

    def __init__(self, tracking: str = "auto") -> None:
        self._cgroups = Cgroups.find() if tracking != "subreaper" else None
        if tracking == "cgroup" and self._cgroups is None:
            raise TrackingError(
                "tracking 'cgroup': this process may make no control groups of version 2 below its "
                "own; run it where they are delegated to it, or say tracking 'auto'"
            )
        # As pid 1 this process has the orphans of all, and nobody else reaps them.
        orphans = self._cgroups is None or os.getpid() == 1
        self._subreaper = Subreaper() if orphans else None
        self._busy: list[Callable[[], bool]] = []

    def new(self, name: str) -> Tree:
        """Make the tree of the terminal, or other program, `name`. Raises `OSError`."""
        if self._cgroups is not None:
            return self._cgroups.new(name)
        assert self._subreaper is not None  # noqa: S101  one of the two there is
        return self._subreaper.new(name)

    @property
    def tracking(self) -> str:
        """How its trees are known: `cgroup` or `subreaper`."""
        return "subreaper" if self._cgroups is None else "cgroup"

    async def whose(self, pid: int) -> str | None:
        """Give the name of the tree that a process is of; None if it is of none."""
        if self._cgroups is not None:
            return self._cgroups.whose(pid)
        assert self._subreaper is not None  # noqa: S101  one of the two there is
        return await self._subreaper.whose(pid)

    def spare(self, pids: Callable[[], Iterable[int]], busy: Callable[[], bool]) -> None:
        """Have the children that `pids` names, now or later, never taken for orphans.

        While `busy` there may be a child that nobody has been told of yet: none is reaped then.
        """
        if self._subreaper is not None:
            self._subreaper.spare(pids)
        self._busy.append(busy)

    async def run(self) -> None:
        """Reap orphans until cancelled; returns at once where that is not this process's to do."""
        if self._subreaper is not None:
            await self._subreaper.run(lambda: any(busy() for busy in self._busy))

    def close(self) -> None:
        """Remove what is left of the control groups, which are empty by now."""
        if self._cgroups is not None:
            self._cgroups.close()


@asynccontextmanager
async def open_trees(tracking: str = "auto") -> AsyncIterator[Trees]:
    """Have `Trees`, run, for as long as the block lasts. Raises `TrackingError`."""
    trees = Trees(tracking)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trees.run)
            yield trees
            nursery.cancel_scope.cancel()
    finally:
        trees.close()
