"""Trees by descent, session, identity and marks: the way that needs no control groups.

All programs are started by one process, the *parent*: this one, or the keeper. It is a subreaper
(prctl(2), PR_SET_CHILD_SUBREAPER), so an orphan of any tree becomes its child, and every process of
every tree is its descendant at all times. To the tree of a terminal whose first child was `root`
belong:

- `root`, while its pid is ours, known by pid and start time;
- every process of root's session: its id is root's pid, which the system does not use again while
  the session has a member. Once root is reaped, that holds for processes that had started by then;
- the descendants of all these, and of every process once seen to belong;
- orphans that carry the terminal's marks (`marks`): a process that leaves the session, whose
  parent ends and who clears its environment is still known by its resource limit;
- orphans without any mark that no other tree can have: they started in this one's lifetime and in
  no other's that is still open.

What is not known: a process that has left the session, has cleared its environment, has reset the
resource limit, and was never seen while its parent lived. With one tree open the last rule applies
to it at once; else it is killed when the last tree closes that may own it. Outside of Linux the
only mark is the environment.

Making each first child a subreaper of its own would keep descent visible, but harms programs: one
that waits for *any* child waits for adopted daemons too, and one that waits for its own children
only collects their zombies.

Orphans that end are reaped by the parent: by `Subreaper.run` if that is this process, by the
keeper otherwise.
"""

import contextlib
import math
import os
import signal
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Final

import trio

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.slices import collect
from acpterm.pty.tracking.tree import Rlimits, retry_on_oserror

# Between two rounds that reap orphans; one that is a zombie in two rounds has no other parent.
_ROUND_S = 1.0
# Start times are in clock ticks, and the system's clock is read a moment later.
_SLACK_S = 0.02
# Closing a tree may take so long to end what only then can be no other tree's.
_CLOSING_S = 1.0
# A tree of more processes than this, or one that has grown since it was signalled, is stopped
# before it is killed: else its forks take the places of those that are gone.
_SMALL_TREE = 16
_STOP_ROUNDS_MAX = 10
_CLOSED_TAGS_MAX = 4096
# How often the parent's children are listed until nothing new is among them.
_LOOKS_MAX = 20


class _Scan:
    """One reading of all processes, shared by the callers that wait for it."""

    found: list[ProcStat] | None = None


class Subreaper:
    """The trees of one parent, which adopts their orphans.

    `parent`: its pid; this process if None, which then adopts and `run` reaps. `sole_parent`:
    whether all children of the parent that are not excluded come from trees, so that an orphan
    without marks may be attributed by its start time. `socket_path`: where the daemon listens.
    """

    def __init__(
        self,
        parent: int | None = None,
        *,
        sole_parent: bool = True,
        socket_path: str | None = None,
    ) -> None:
        if parent is None:
            parent = os.getpid() if linux.become_subreaper() else 1
        self.parent: Final = parent
        self.daemon: Final = Daemon.of(parent if parent != 1 else os.getpid(), socket_path)
        self.trees: Final[set[DescendantTree]] = set()
        self._sole_parent: Final = sole_parent
        self._excluded: list[Callable[[], Iterable[int]]] = []
        self._closed_tags: OrderedDict[int, None] = OrderedDict()
        self._next = _Scan()
        self._scanning = trio.Lock()

    def new(self, name: str) -> "DescendantTree":
        """Make the tree of the terminal `name`."""
        tree = DescendantTree(self, name)
        self.trees.add(tree)
        return tree

    def adopt(
        self, name: str, pid: int, started: float, reaped_at: float | None
    ) -> "DescendantTree":
        """Make the tree of a terminal whose first child was started by a predecessor of ours."""
        tree = self.new(name)
        tree.restore(pid, started, reaped_at)
        return tree

    def discard(self, tree: "DescendantTree") -> None:
        """Forget a tree. What still turns up of it is killed when it is seen."""
        self.trees.discard(tree)
        self._closed_tags[tree.tag] = None
        while len(self._closed_tags) > _CLOSED_TAGS_MAX:
            self._closed_tags.popitem(last=False)

    async def scan(self) -> list[ProcStat]:
        """Read all processes, as they are after this call.

        Callers that come while a scan is under way share the next one: many trees that end at
        once cost little more than one.
        """
        scan = self._next
        async with self._scanning:
            if scan.found is None:
                self._next = _Scan()
                found = await collect(processes.read_all())
                scan.found = [process for process in found if process is not None]
            return scan.found

    def has_orphans_of(self, tree: "DescendantTree") -> bool | None:
        """Return whether an orphan of `tree` runs; None if that is not known.

        Reads nothing but the parent's children, and those of them that are not first children: a
        program that is just being started is one for a moment. True if orphans of the tree come
        and go faster than they can be looked at. Raises `OSError`.
        """
        if not linux.AVAILABLE or self.parent == 1:
            return None
        judged = self._known()
        for _ in range(_LOOKS_MAX):
            children = linux.children(self.parent)
            if children is None:
                return None
            is_settled = True
            for pid in children - judged:
                orphan = linux.read_stat(pid)
                if orphan is None or orphan.ppid != self.parent:
                    is_settled = False
                    continue
                owner = self.owner(orphan, tree)
                if not orphan.zombie and (owner is None or owner is tree):
                    return None if owner is None else True
                # One that ended before it was looked at may have forked, after the list was read.
                if owner is None or owner is tree:
                    is_settled = False
            if is_settled:
                return False
            judged |= children
        return True

    def exclude(self, pids: Callable[[], Iterable[int]]) -> None:
        """Never take the children that `pids` names, now or later, for orphans."""
        self._excluded.append(pids)

    def orphans(self, found: list[ProcStat]) -> list[ProcStat]:
        """Return the children of the parent that are neither first children nor excluded."""
        known = self._known()
        return [p for p in found if p.ppid == self.parent and p.pid not in known]

    def owner(self, orphan: ProcStat, closing: "DescendantTree") -> "DescendantTree | None":
        """Return the tree that an orphan belongs to, as far as that is certain; kill a stray.

        `closing`: a tree that counts although it may be forgotten already. A stray is what one has
        left that is forgotten altogether.
        """
        trees = {*self.trees, closing}
        if owner := next((tree for tree in trees if tree.has(orphan)), None):
            return owner
        found = marks.read(orphan.pid)
        owner = _marked(found, trees)
        if owner is None:
            named = None if found.terminal is None else marks.tag(found.terminal)
            if found.tag in self._closed_tags or named in self._closed_tags:
                with contextlib.suppress(OSError):
                    processes.send(orphan, signal.SIGKILL)
            elif self._sole_parent and orphan.ppid != 1 and not found.detached:
                able = [tree for tree in trees if tree.may_own(orphan)]
                owner = able[0] if len(able) == 1 else None
        if owner is not None:
            owner.recognise(orphan)
        return owner

    def _known(self) -> set[int]:
        excluded = {pid for pids in self._excluded for pid in pids()}
        roots = {tree.root for tree in self.trees if tree.root is not None}
        return excluded | roots | {os.getpid()}

    async def run(self, busy: Callable[[], bool]) -> None:
        """Reap orphans until cancelled; not while `busy`: then a child may not be known yet.

        Returns at once where another process is the parent.
        """
        if self.parent != os.getpid():
            return
        before: set[tuple[int, float]] = set()
        with trio.open_signal_receiver(signal.SIGCHLD) as deaths:
            async for _ in deaths:
                while not busy():
                    await trio.sleep(_ROUND_S)
                    try:
                        orphans = await self._orphans_now()
                    except OSError:
                        continue  # no descriptor is left just now; there is another round
                    dead = {(p.pid, p.started) for p in orphans if p.zombie}
                    for pid, _started in dead & before:
                        if not busy() and pid not in self._known():
                            _reap(pid)
                    before = dead - before
                    if not before:
                        break

    async def _orphans_now(self) -> list[ProcStat]:
        children = linux.children(self.parent) if linux.AVAILABLE else None
        if children is None:
            return self.orphans(await self.scan())
        found = await collect(map(linux.read_stat, children))
        return self.orphans([process for process in found if process is not None])


def _marked(found: marks.Marks, trees: "Iterable[DescendantTree]") -> "DescendantTree | None":
    by_tag = (tree for tree in trees if tree.tag == found.tag)
    by_name = (tree for tree in trees if tree.name == found.terminal)
    return next(by_tag, None) or next(by_name, None)


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class DescendantTree:
    """One terminal's processes by descent. See `tree.Tree`."""

    cgroup: int | None = None
    join: str | None = None

    def __init__(self, subreaper: Subreaper, name: str) -> None:
        self.name: Final = name
        self.tag: Final = marks.tag(name)
        self._subreaper = subreaper
        self._seen: set[tuple[int, float]] = set()
        self._pid: int | None = None
        self._pid_started: float | None = None
        # Processes that may be of this tree, by when they started: while the first child was being
        # made, which may be any new child of the parent then; and since its program began.
        self._making = processes.now()
        self._made = math.inf
        self._begun = math.inf
        self._reaped_at: float | None = None
        self._is_over = False

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that mark the tree's processes."""
        return marks.environment(self.name, self._subreaper.daemon)

    @property
    def rlimits(self) -> Rlimits:
        """The limit that marks the tree's processes."""
        return marks.rlimits(self.name)

    @property
    def root(self) -> int | None:
        """The first child's pid while it is ours."""
        return None if self._reaped_at is not None else self._pid

    def has(self, process: ProcStat) -> bool:
        """Return whether a process is of the tree, as far as that is known without its marks."""
        identity = process.pid, process.started
        return self._is_root(process) or self._in_session(process) or identity in self._seen

    def recognise(self, process: ProcStat) -> None:
        """Record that a process is of the tree."""
        self._seen.add((process.pid, process.started))

    def may_own(self, orphan: ProcStat) -> bool:
        """Return whether an orphan without marks has started at a time when this tree did start."""
        while_making = self._making - _SLACK_S <= orphan.started <= self._made + _SLACK_S
        return while_making or orphan.started >= self._begun - _SLACK_S

    def started(self, pid: int, started: float | None = None) -> None:
        """Record the first child's identity."""
        self._made = processes.now()
        self._pid = pid
        if not started:
            with contextlib.suppress(OSError):
                found = processes.identity(pid)
                started = None if found is None else found.started
        self._pid_started = started

    def restore(self, pid: int, started: float, reaped_at: float | None) -> None:
        """Record the identity of a first child that a predecessor of this process started."""
        self.started(pid, started)
        self._making = self._begun = self._made = started
        self._reaped_at = reaped_at

    def begins(self) -> None:
        """Record that processes which start from now on may be of the tree."""
        self._begun = processes.now()

    def reaped(self, at: float | None = None) -> None:
        """Record that the first child's pid is no longer ours."""
        self._reaped_at = processes.now() if at is None else at

    async def empty(self) -> bool:
        """Return whether no process is left."""
        await trio.lowlevel.checkpoint()
        if self.root is not None:
            found = processes.identity(self.root)
            if found is not None and self._is_root(found) and not found.zombie:
                return False
        # The first child has ended: whatever else there is descends from an orphan.
        if not self._is_over:
            has_orphans = self._subreaper.has_orphans_of(self)
            if has_orphans is None:
                return not await self.members()
            # Without any, nothing can be forked any more.
            self._is_over = not has_orphans
        return self._is_over

    async def signal(self, number: int, *, without: Collection[int] = ()) -> None:
        """Signal each process by its identity, but for the pids `without`."""
        for process in await self.members():
            if process.pid not in without:
                processes.send(process, number)

    async def kill(self) -> None:
        """SIGKILL what is there until nothing is: what forks meanwhile is there the next time."""
        pause = 0.002
        before = _SMALL_TREE
        while not await retry_on_oserror(self.empty):
            members = await retry_on_oserror(self.members)
            if len(members) > before:
                members = await self._stop(members)
            before = len(members)
            for process in members:
                with contextlib.suppress(OSError):  # then the next time
                    processes.send(process, signal.SIGKILL)
            await trio.sleep(pause)
            pause = min(2 * pause, 0.1)

    async def _stop(self, members: list[ProcStat]) -> list[ProcStat]:
        """Stop the tree until it grows no more, as far as that succeeds; return its members."""
        stopped: set[ProcStat] = set()
        for _ in range(_STOP_ROUNDS_MAX):
            running = set(members) - stopped
            if not running:
                break
            for process in running:
                with contextlib.suppress(OSError):
                    processes.send(process, signal.SIGSTOP)
            stopped |= running
            members = await retry_on_oserror(self.members)
        return members

    async def close(self) -> None:
        """Forget the tree, and end what only now can be no other's."""
        self._subreaper.discard(self)
        with trio.move_on_after(_CLOSING_S, shield=True):
            await self.kill()

    async def members(self) -> list[ProcStat]:
        """Return the processes of the tree that run. Raises `OSError` when they cannot be seen."""
        found = await self._subreaper.scan()
        self._check_root(found)
        orphans = [p for p in self._subreaper.orphans(found) if not p.zombie]
        owners = await collect(self._subreaper.owner(orphan, self) for orphan in orphans)
        adopted = {p.pid for p, owner in zip(orphans, owners, strict=True) if owner is self}
        mine = {p.pid for p in found if self.has(p)} | adopted
        children: dict[int, list[int]] = {}
        for p in found:
            children.setdefault(p.ppid, []).append(p.pid)
        pending = list(mine)
        while pending:
            for pid in children.get(pending.pop(), ()):
                if pid not in mine:
                    mine.add(pid)
                    pending.append(pid)
        members = [p for p in found if p.pid in mine and not p.zombie]
        self._seen = {(p.pid, p.started) for p in members}
        return members

    def _check_root(self, found: list[ProcStat]) -> None:
        """Record that the first child was reaped, if another process has its pid by now.

        The parent may be a process that tells of it later.
        """
        for process in found:
            if process.pid == self.root and not self._is_root(process):
                self.reaped(process.started - 2 * _SLACK_S)

    def _is_root(self, process: ProcStat) -> bool:
        known = self._pid_started is None or process.started == self._pid_started
        return process.pid == self.root and known

    def _in_session(self, process: ProcStat) -> bool:
        if process.sid != self._pid or self._pid is None:
            return False
        return self._reaped_at is None or process.started <= self._reaped_at + _SLACK_S
