"""The trees of this process: which ways there are to know processes, and what keeps them going.

One `Trees` a process, shared by all that start programs: orphans become children of one process,
the parent, and only with all trees and all other children of the parent known can it be seen whose
an orphan is. The parent is this process, or the keeper, which then reaps.

A successor of this process goes on with what `handover` gave: it passes that as `inherited`, and
calls `adopt` for each terminal.
"""

import os
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from contextlib import asynccontextmanager
from typing import Final, NamedTuple

import trio

from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.combined import CombinedTree
from acpterm.pty.tracking.leftovers import end_leftovers
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.origin import Origin, find_origin
from acpterm.pty.tracking.subreaper import Subreaper
from acpterm.pty.tracking.tree import ProcessTree


class TrackingError(Exception):
    """The way to know a terminal's processes that was asked for cannot be had here."""


class Handover(NamedTuple):
    """What a successor of this process needs besides each terminal's pid and start time."""

    value: bytes
    fds: tuple[int, ...]
    """Open in this process until `Trees.close`; duplicates are the successor's."""


class Trees:
    """Makes trees of processes.

    `tracking`: `cgroup` or `auto` for control groups and descent, where `cgroup` insists on the
    former; `subreaper` for descent alone. `parent`: the process that starts the programs and adopts
    their orphans; None for this one. `inherited`: the `handover` of a predecessor, whose
    descriptors become ours. `held`: names of terminals that outlived a daemon that was killed.
    `socket_path`: where the daemon listens, if it does. Raises
    `TrackingError` when there are no control groups and they were asked for.
    """

    def __init__(
        self,
        tracking: str = "auto",
        *,
        parent: int | None = None,
        inherited: Handover | None = None,
        held: Collection[str] = (),
        socket_path: str | None = None,
    ) -> None:
        self._cgroups = None if inherited is None else _adopted(inherited)
        if self._cgroups is None and tracking != "subreaper":
            self._cgroups = Cgroups.find(held)
        if tracking == "cgroup" and self._cgroups is None:
            raise TrackingError(
                "tracking 'cgroup': this process may make no control groups of version 2 below its "
                "own; run it where they are delegated to it, or say tracking 'auto'"
            )
        # This process has children of its own besides. Where control groups tell them apart, none
        # of them need be suspected.
        sole_parent = parent is not None or self._cgroups is None
        self._subreaper: Final = Subreaper(parent, sole_parent=sole_parent, socket_path=socket_path)
        self._busy: list[Callable[[], bool]] = []

    def new(self, name: str) -> ProcessTree:
        """Make the tree of the terminal, or other program, `name`. Raises `OSError`."""
        if self._cgroups is None:
            return self._subreaper.new(name)
        group = self._cgroups.new(name)
        return CombinedTree(group, self._subreaper.new(name))

    def adopt(
        self, name: str, pid: int, started: float, *, reaped_at: float | None = None
    ) -> ProcessTree:
        """Make the tree of a terminal that a predecessor made, from its first child's identity.

        `started` is `ProcStat.started`; `reaped_at`, once it was reaped, a time of
        `processes.now`.
        """
        descent = self._subreaper.adopt(name, pid, started, reaped_at)
        return (
            descent
            if self._cgroups is None
            else CombinedTree(self._cgroups.existing(name), descent)
        )

    def handover(self) -> Handover:
        """Return what a successor needs, to be stored before the first terminal is made."""
        if self._cgroups is None:
            return Handover(b"", ())
        base, lock = self._cgroups.handover()
        return Handover(os.fsencode(base), (lock,))

    @property
    def tracking(self) -> str:
        """How its trees are known: `cgroup` (and descent) or `subreaper`."""
        return "subreaper" if self._cgroups is None else "cgroup"

    @property
    def daemon(self) -> Daemon:
        """The identity that its programs' environment names."""
        return self._subreaper.daemon

    def origin(self, pid: int) -> Origin | None:
        """Return where a process comes from: see `find_origin`. Takes about a millisecond."""
        base = None if self._cgroups is None else self._cgroups.name
        return find_origin(
            pid, parent=self._subreaper.parent, trees=self._subreaper.trees, base=base
        )

    def exclude(self, pids: Callable[[], Iterable[int]], busy: Callable[[], bool]) -> None:
        """Never take the children that `pids` names, now or later, for orphans.

        While `busy` there may be a child that is not known yet: none is reaped then.
        """
        self._subreaper.exclude(pids)
        self._busy.append(busy)

    async def end_leftovers(self) -> int:
        """Kill what daemons that are gone have left, but for the trees that are open here.

        Call it once all trees are adopted. Returns how many processes that were.
        """
        held = {tree.name for tree in self._subreaper.trees}
        return await end_leftovers(self.daemon, held)

    async def run(self) -> None:
        """Reap orphans until cancelled; returns at once where that is not this process's to do."""
        await self._subreaper.run(lambda: any(busy() for busy in self._busy))

    def close(self) -> None:
        """Remove what is left of the control groups, which are empty by now."""
        if self._cgroups is not None:
            self._cgroups.close()


def _adopted(inherited: Handover) -> Cgroups | None:
    if not inherited.fds:
        return None
    lock, *others = inherited.fds
    for fd in others:
        os.close(fd)
    return Cgroups.adopt(os.fsdecode(inherited.value), lock)


@asynccontextmanager
async def open_trees(
    tracking: str = "auto", *, parent: int | None = None, socket_path: str | None = None
) -> AsyncIterator[Trees]:
    """Have `Trees`, run, for as long as the block lasts. Raises `TrackingError`."""
    trees = Trees(tracking, parent=parent, socket_path=socket_path)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trees.run)
            yield trees
            nursery.cancel_scope.cancel()
    finally:
        trees.close()
