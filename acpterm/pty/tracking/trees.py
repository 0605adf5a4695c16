"""`Trees`: creates and adopts process trees of programs, and chooses how to track them.

Each tree is tracked by descent, and if control groups are used, also by one.

Orphans become children of one process, the *parent*, which starts the programs and reaps orphans.
In a worker, the parent is the keeper, and `Trees.run` returns at once; elsewhere, this process is
the parent, and `run` reaps. To attribute an orphan to the right tree, `Trees` must know all trees.
So a process that runs several programs uses one `Trees` for all of them.

At a take-over, the new worker passes the old worker's `handover` to its own `Trees` as `inherited`,
and calls `adopt` for each terminal.

Leftovers are the processes that a daemon left behind when it was killed; they are killed.

A process is a leftover in either of two cases:

- It is in a control group of a killed daemon: no process holds the lock of the directory of that
  daemon's control groups (`cgroup`).
- The variable `marks.DAEMON` in its environment names a daemon of this pid namespace that no longer
  runs, and that listened on this daemon's socket or on no socket. The leftovers of a daemon that
  listened on another socket are left to the next daemon on that socket.

All processes in the control groups of a killed daemon are killed. Outside of these groups, the
following are never killed: processes of other users, this process, its ancestors, and the processes
of this daemon's terminals, including those that it has taken over from a killed daemon (`held`).
"""

import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Final, NamedTuple

import structlog
import trio

from acpterm.pty import linux, processes
from acpterm.pty.limits import ResourceLimits
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import cgroup, controllers, marks
from acpterm.pty.tracking.cgroup import Cgroups
from acpterm.pty.tracking.cgroup_limits import Enforcement, enforce
from acpterm.pty.tracking.cgroup_tree import CgroupTree
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.origin import Origin, find_origin
from acpterm.pty.tracking.subreaper import Subreaper
from acpterm.pty.tracking.tree import ProcessTree, collect, retry_on_oserror
from acpterm.runtime.descriptors import reserve

_POLL_S: Final = 0.05
_TIMEOUT_S: Final = 10.0

_log = structlog.get_logger("acpterm.leftovers")


async def end_leftovers(daemon: Daemon, held: Collection[str] = ()) -> int:
    """Kill the processes that killed daemons left behind; return their number.

    `held` are the ids of this daemon's terminals, also those taken over: their processes are killed
    only within a killed daemon's control group. Gives up after 10 seconds.
    """
    if not linux.AVAILABLE:
        return 0
    ended: set[tuple[int, float]] = set()
    groups: set[str] = set()
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        found = await retry_on_oserror(lambda: _find(daemon, held))
        if not found and not groups:
            break
        for process, base in found:
            ended.add((process.pid, process.started))
            if base is None:
                # If no descriptor is free for the signal, the next round tries again.
                with suppress(OSError):
                    processes.send(process, signal.SIGKILL)
            else:
                groups.add(base)
        if groups:
            with reserve.lent():
                groups = {base for base in groups if not cgroup.clear_stale(base)}
        await trio.sleep(_POLL_S)
    if ended:
        _log.info("killed the processes that a killed daemon had left", processes=len(ended))
    return len(ended)


async def _find(daemon: Daemon, held: Collection[str]) -> list[tuple[ProcStat, str | None]]:
    """Return the leftovers, each with its killed daemon's directory of groups, if in one."""
    steps = await collect(_leftovers(daemon, held, _ancestors()))
    return [step for step in steps if step is not None]


def _leftovers(
    daemon: Daemon, held: Collection[str], spared: Collection[int]
) -> Iterator[tuple[ProcStat, str | None] | None]:
    """Check all processes; yield each leftover as in `_find`, and None before each check."""
    uid = os.geteuid()
    for process in processes.read_all():
        yield None
        if process is None or process.zombie or process.pid in spared:
            continue
        try:
            if os.stat(f"/proc/{process.pid}").st_uid != uid:
                continue
        except OSError:
            continue
        base = cgroup.stale_base_of(process.pid)
        if base is not None or _has_marks_of_leftover(process.pid, daemon, held):
            yield process, base


def _has_marks_of_leftover(pid: int, daemon: Daemon, held: Collection[str]) -> bool:
    found = marks.read(pid)
    if found.daemon is None or found.terminal in held:
        return False
    return found.daemon.place in (0, daemon.place) and found.daemon.is_gone()


def _ancestors() -> set[int]:
    """Return the pids of this process and its ancestors."""
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        process = processes.identity(pid)
        pid = 0 if process is None else process.ppid
    return found


class TrackingError(Exception):
    """Control groups were requested, but this process may not create any."""


class Handover(NamedTuple):
    """What the next worker needs, besides pids and start times; empty without control groups."""

    value: bytes  # the path of the daemon's directory of control groups
    # Holds the directory's lock. Open until `Trees.close`; the next worker gets a duplicate.
    fds: tuple[int, ...]


class Trees:
    """All process trees of this process; creates and adopts them.

    `tracking` is `auto` (by descent and, if available, control groups), `cgroup` (requires them, or
    raises `TrackingError`) or `subreaper` (descent alone). `parent` is as in the module; None for
    this process. `inherited` is the previous worker's `handover`, which this object then owns. The
    control groups of `held`, ids of terminals that outlived a killed daemon, are used again.
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
        """Create the tree of a terminal (or other program). Raises `OSError`."""
        group = None if self._cgroups is None else self._cgroups.new(name)
        return self._subreaper.new(name, group)

    def adopt(
        self,
        name: str,
        pid: int,
        started: float,
        *,
        reaped_at: float | None = None,
        session: int | None = None,
    ) -> ProcessTree:
        """Create the tree of a previous worker's terminal; times as in `ProcStat.started`."""
        group = None if self._cgroups is None else CgroupTree(self._cgroups.directory(name))
        tree = self._subreaper.new(name, group)
        tree.restore(pid, started, reaped_at, session)
        return tree

    def enforce(self, name: str, limits: ResourceLimits) -> Enforcement | None:
        """Set the limits of a terminal before its program is started; None if there are none."""
        if not limits:
            return None
        cgroups = self._cgroups
        if cgroups is None:
            return enforce(limits, None, lambda _: None)
        own_pids = {os.getpid(), self._subreaper.parent}
        return enforce(
            limits,
            cgroups.directory(name),
            lambda controller: controllers.enable(controller, cgroups.base, own_pids),
        )

    def enforce_again(self, name: str, limits: ResourceLimits) -> Enforcement | None:
        """Set the limits again after a take-over: `release_controllers` may have removed them."""
        # Without a control group nothing is set, and all limits count as enforced.
        directory = None if self._cgroups is None else self._cgroups.directory(name)
        if directory is None or not os.path.isdir(directory):
            return Enforcement(limits, directory) if limits else None
        return self.enforce(name, limits)

    def release_controllers(self) -> None:
        """Disable controllers, so that systemd can start the service again (`controllers`)."""
        # Limits of control groups have no effect until the next worker's `enforce_again`.
        if self._cgroups is not None:
            controllers.disable(self._cgroups.base)

    def handover(self) -> Handover:
        """Return the state for the next worker, before the first terminal is created."""
        if self._cgroups is None:
            return Handover(b"", ())
        return Handover(os.fsencode(self._cgroups.base), (self._cgroups.lock,))

    @property
    def tracking(self) -> str:
        """How trees are tracked: `cgroup` (by control group and descent) or `subreaper`."""
        return "subreaper" if self._cgroups is None else "cgroup"

    @property
    def daemon(self) -> Daemon:
        """The daemon's identity, which is a mark in the environment of programs."""
        return self._subreaper.daemon

    def origin(self, pid: int) -> Origin | None:
        """Return the terminals from which a process may come. Raises `OSError`."""
        base = None if self._cgroups is None else self._cgroups.name
        return find_origin(
            pid, parent=self._subreaper.parent, trees=self._subreaper.trees, base=base
        )

    def wait_while(self, busy: Callable[[], bool]) -> None:
        """Reap no orphan while `busy()`: a process is being started that is in no tree."""
        self._busy.append(busy)

    async def end_leftovers(self) -> int:
        """Kill what killed daemons left, after all trees were adopted; return how many."""
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
    """Yield a new `Trees`, which reaps orphans during the block."""
    trees = Trees(tracking, parent=parent)
    try:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(trees.run)
            yield trees
            nursery.cancel_scope.cancel()
    finally:
        trees.close()
