"""`Trees`: creates and adopts process trees of programs, and chooses how to track them.

Each tree is tracked by descent, and if control groups are used, also by one (`CombinedTree`).

Orphans become children of one process, the *parent*, which starts the programs and reaps orphans.
In a worker, the parent is the keeper, and `Trees.run` returns at once; elsewhere, this process is
the parent, and `run` reaps. To attribute an orphan to the right tree, `Trees` must know all trees.
So a process that runs several programs uses one `Trees` for all of them.

At a take-over, the new worker passes the old worker's `handover` to its own `Trees` as `inherited`,
and calls `adopt` for each terminal.
"""

import os
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from contextlib import asynccontextmanager
from functools import partial
from typing import Final, NamedTuple

import trio

from acpterm.pty.limits import ResourceLimits
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.cgroup_limits import Enforcement, enforce
from acpterm.pty.tracking.cgroup_tree import CgroupTree
from acpterm.pty.tracking.descendant_tree import DescendantTree
from acpterm.pty.tracking.leftovers import end_leftovers
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.origin import Origin, find_origin
from acpterm.pty.tracking.subreaper import Subreaper
from acpterm.pty.tracking.tree import ProcessTree, Rlimits, empty, retry_on_oserror


class CombinedTree:
    """A tree that is tracked by its control group and by descent at once.

    A forked process is in the control group of its parent, until a system manager or the process
    itself moves it to another group. A process can move itself if it runs as root, or if the user
    owns the other group's directory. A process that was moved is still tracked by descent.
    Implements `tree.ProcessTree`.
    """

    def __init__(self, group: CgroupTree, descent: DescendantTree) -> None:
        self._group: Final = group
        self._descent: Final = descent

    @property
    def cgroup(self) -> int | None:
        """A descriptor of the control group's directory; None once the program was started."""
        return self._group.cgroup

    @property
    def join(self) -> str | None:
        """The file to which a process writes `0` to join the control group."""
        return self._group.join

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that mark the tree's processes."""
        return self._descent.environment

    @property
    def rlimits(self) -> Rlimits:
        """The resource limit that marks the tree's processes; empty if none (`marks.rlimits`)."""
        return self._descent.rlimits

    def started(self, pid: int, started: float | None = None, session: int | None = None) -> None:
        """Record that the program was started; the arguments are as in `ProcessTree`."""
        self._group.started()
        self._descent.started(pid, started, session)

    def begins(self) -> None:
        """Record that from now on the terminal's program may run, and may start processes."""
        self._descent.begins()

    def reaped(self, at: float | None = None, orphans: Collection[int] | None = None) -> None:
        """Record that the program was reaped; the arguments are as in `ProcessTree`."""
        self._descent.reaped(at, orphans)

    def session_ended(self) -> None:
        """Record that the leader of the terminal's session was reaped."""
        self._descent.session_ended()

    def is_empty(self) -> bool | None:
        """Return whether no process of the tree runs, neither in the control group nor outside.

        None if only `members` can tell.
        """
        is_empty = self._descent.is_empty()
        # All processes of the group descend from a program or an orphan.
        if is_empty is None and not self._group.is_empty():
            return False
        return is_empty

    async def members(self) -> list[ProcStat]:
        """Return the running processes of the tree, inside and outside the control group."""
        found = (*await self._group.members(), *await self._descent.members())
        return list({process.pid: process for process in found}.values())

    async def signal(self, number: int) -> None:
        """Send the signal `number` to the tree's processes inside and outside the control group.

        Raises `OSError` if the processes cannot be read or signalled.
        """
        inside = set(self._group.pids())
        await self._group.signal(number)
        await self._descent.signal(number, without=inside)

    async def kill(self) -> None:
        """Kill all processes of the tree; each round kills those in the control group first."""
        while not await retry_on_oserror(partial(empty, self)):
            await self._group.kill()
            await self._descent.kill()

    async def close(self) -> None:
        """Stop tracking the tree, and remove its control group."""
        await self._descent.close()
        await self._group.close()


class TrackingError(Exception):
    """Tracking by control groups was requested, but this process may not create control groups."""


class Handover(NamedTuple):
    """What the next worker needs to track processes, in addition to pids and start times."""

    value: bytes
    """The path of the daemon's directory of control groups; empty without control groups."""
    fds: tuple[int, ...]
    """The descriptor that holds the directory's lock; empty without control groups.

    The descriptor stays open until `Trees.close`. The next worker gets a duplicate.
    """


class Trees:
    """All process trees of this process; creates and adopts them.

    `tracking` is `auto` to track by descent and, if available, by control groups; `cgroup` to
    require control groups; `subreaper` to track by descent alone. `parent` is the pid of the
    process that starts programs and adopts their orphans; None for this process. `inherited` is the
    `handover` of the previous worker, whose descriptors this object then owns; None without such a
    worker. `held` are the ids of terminals that outlived a killed daemon: their control groups are
    used again. `socket_path` is the path of the daemon's socket; None without one. Raises
    `TrackingError` if `tracking` is `cgroup` and this process may not create control groups.
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
        # If this process is the parent, it may also have children that belong to no tree, so
        # orphans without marks are attributed by their start time only if there are no control
        # groups, which would attribute them reliably.
        sole_parent = parent is not None or self._cgroups is None
        self._subreaper: Final = Subreaper(parent, sole_parent=sole_parent, socket_path=socket_path)
        self._busy: list[Callable[[], bool]] = []

    def new(self, name: str) -> ProcessTree:
        """Create the tree of the terminal (or other program) with id `name`.

        Raises `OSError` if `Trees` uses control groups, but cannot create the one of this tree.
        """
        if self._cgroups is None:
            return self._subreaper.new(name)
        group = self._cgroups.new(name)
        return CombinedTree(group, self._subreaper.new(name))

    def adopt(
        self,
        name: str,
        pid: int,
        started: float,
        *,
        reaped_at: float | None = None,
        session: int | None = None,
    ) -> ProcessTree:
        """Create the tree of a terminal that a previous worker created.

        `name` is the terminal's id. `pid` and `started` (as in `ProcStat`) identify its program.
        `reaped_at` is the time, as from `processes.now`, at which the program was reaped; None if
        it was not reaped. `session` is as in `ProcessTree.started`.
        """
        descent = self._subreaper.adopt(name, pid, started, reaped_at, session)
        return (
            descent
            if self._cgroups is None
            else CombinedTree(self._cgroups.existing(name), descent)
        )

    def enforce(self, name: str, limits: ResourceLimits) -> Enforcement | None:
        """Set the limits of a terminal's control group, before its program is started.

        `name` is the id of the terminal, whose tree `new` has created. The result says which limits
        are enforced, and why the others cannot be. Returns None if `limits` has no limit.
        """
        if not limits:
            return None
        cgroups = self._cgroups
        if cgroups is None:
            return enforce(limits, None, lambda _: None)
        own_pids = {os.getpid(), self._subreaper.parent}
        return enforce(
            limits, cgroups.directory(name), lambda controller: cgroups.enable(controller, own_pids)
        )

    def enforce_again(self, name: str, limits: ResourceLimits) -> Enforcement | None:
        """Set `limits` again for the terminal with the id `name`, after a take-over.

        An earlier call of `release_controllers` may have removed the limits. Returns None if
        `limits` has no limit. If the terminal has no control group, nothing is set, and the result
        lists all `limits` as enforced, even those that only a control group could enforce.
        """
        directory = None if self._cgroups is None else self._cgroups.directory(name)
        if directory is None or not os.path.isdir(directory):
            return Enforcement(limits, directory) if limits else None
        return self.enforce(name, limits)

    def release_controllers(self) -> None:
        """Disable controllers, so that systemd can start the daemon's service again.

        Call this if the keeper has died and the programs keep running (see `controllers`). The
        limits of control groups have no effect until the next worker calls `enforce_again`.
        """
        if self._cgroups is not None:
            self._cgroups.disable_controllers()

    def handover(self) -> Handover:
        """Return the state for the next worker.

        The caller stores it in the keeper before the first terminal is created.
        """
        if self._cgroups is None:
            return Handover(b"", ())
        base, lock = self._cgroups.handover()
        return Handover(os.fsencode(base), (lock,))

    @property
    def tracking(self) -> str:
        """How trees are tracked: `cgroup` (by control group and descent) or `subreaper`."""
        return "subreaper" if self._cgroups is None else "cgroup"

    @property
    def daemon(self) -> Daemon:
        """The daemon's identity, which is a mark in the environment of programs."""
        return self._subreaper.daemon

    def origin(self, pid: int) -> Origin | None:
        """Return the terminals from which a process may come; None if they cannot be determined.

        Takes about a millisecond. Raises `OSError` if no file descriptor is free.
        """
        base = None if self._cgroups is None else self._cgroups.name
        return find_origin(
            pid, parent=self._subreaper.parent, trees=self._subreaper.trees, base=base
        )

    def wait_while(self, busy: Callable[[], bool]) -> None:
        """Reap no orphan while `busy()` is true: a process is being started that is in no tree."""
        self._busy.append(busy)

    async def end_leftovers(self) -> int:
        """Kill the processes left by daemons that were killed; return the number of processes.

        Processes of open trees are not killed, so call this after all trees were adopted. Gives up
        after 10 seconds on processes that do not end.
        """
        held = {tree.name for tree in self._subreaper.trees}
        return await end_leftovers(self.daemon, held)

    async def run(self) -> None:
        """Reap orphans until cancelled; return at once if another process adopts the orphans."""
        await self._subreaper.run(lambda: any(busy() for busy in self._busy))

    def close(self) -> None:
        """Remove the directory of the control groups. All trees must have been closed."""
        self._subreaper.close()
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
async def open_trees(tracking: str = "auto", *, parent: int | None = None) -> AsyncIterator[Trees]:
    """Yield a new `Trees`, which reaps orphans during the block and is closed after the block.

    The arguments and errors are those of `Trees`.
    """
    trees = Trees(tracking, parent=parent)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trees.run)
            yield trees
            nursery.cancel_scope.cancel()
    finally:
        trees.close()
