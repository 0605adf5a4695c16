"""Tracking by descent: finds the tree to which an orphan belongs, by evidence of its origin.

`Subreaper` knows all open trees of a daemon (`tree`), and scans processes for them. No
control groups are needed. The process that starts all programs is called the *parent*. It is the
keeper, or this process. The parent is a subreaper (prctl(2), PR_SET_CHILD_SUBREAPER): an orphan of
any tree becomes a child of the parent. So every process of every tree is a descendant of the parent
at all times. The tree of a terminal with the program `root` consists of:

- `root`, known by pid and start time, until it is reaped;
- every process of root's session but its leader, which is the keeper's. The session's id is the
  leader's pid, which the system does not reuse while the session has a member. Once the leader was
  reaped, only processes that started before then belong to the tree by their session;
- the descendants of these processes, and of every process that once was a member of the tree;
- orphans that carry the terminal's marks (`marks`): if a process has left the session, its parent
  has ended, and its environment was cleared, it is still recognised by its resource limit;
- orphans without any mark that started during the lifetime of this tree, but not during the
  lifetime of another open tree. A tree is *open* until it is closed.

One kind of process cannot always be attributed: it has left the session, has cleared its
environment, has reset the resource limit, and was not seen by any scan while its parent lived. If
only one open tree may own the process, the last rule attributes it to that tree. Otherwise the
process is killed when the last tree that may own it is closed. On systems other than Linux, the
environment is the only mark.

If each program were a subreaper, descent would be visible too, but programs would suffer: a program
that waits for *any* child would also wait for adopted orphans, and a program that waits for
specific children would never reap adopted orphans.

The parent reaps orphans that have ended. If the parent is this process, `Subreaper.run` does that;
otherwise the keeper does, and `run` returns at once.
"""

import contextlib
import math
import os
import signal
from collections.abc import Callable, Collection, Iterable
from enum import Enum, auto
from typing import Final
from weakref import WeakValueDictionary

import trio

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.cgroup_tree import CgroupTree
from acpterm.pty.tracking.marks import Daemon, Marks
from acpterm.pty.tracking.tree import LISTED_MAX_S, ProcessTree, collect
from acpterm.runtime.bounded_dict import BoundedDict

# Seconds between two rounds that reap orphans. Only a child that is a zombie in two successive
# rounds is reaped: if other code of this process had started the child, that code would have reaped
# it.
_REAP_INTERVAL_S: Final = 1.0
_CLOSED_TAGS_MAX: Final = 4096
# The maximum number of times that the parent's children are listed until a list has no new
# children.
_LISTINGS_MAX: Final = 20


class _Scan:
    """One scan of all processes of the system. All callers that wait for its result share it."""

    found: list[ProcStat] | None = None


class _Verdict(Enum):
    """To which tree an orphan belongs, seen from one tree."""

    OURS = auto()
    OTHERS = auto()
    UNKNOWN = auto()
    ENDED = auto()


class Subreaper:
    """Has the open trees of a daemon, and finds the tree to which an orphan belongs.

    Without `parent`, this process becomes a subreaper, and `run` reaps orphans; if it cannot,
    `self.parent` is 1. `sole_parent`: all children of the parent belong to trees, so an orphan
    without marks can be attributed by its start time.
    """

    def __init__(
        self, parent: int | None = None, *, sole_parent: bool = True, socket_path: str | None = None
    ) -> None:
        if parent is None:
            parent = os.getpid() if linux.become_subreaper() else 1
        self.parent: Final = parent
        self.daemon: Final = Daemon.of(parent if parent != 1 else os.getpid(), socket_path)
        self.trees: Final[set[ProcessTree]] = set()
        self._sole_parent: Final = sole_parent
        self._children: Final = linux.Children(parent)
        # By the program's pid and the session's id.
        self._tree_of: Final[WeakValueDictionary[int, ProcessTree]] = WeakValueDictionary()
        # The orphans that were attributed, by pid, with their start times. The tree is None for
        # detached processes.
        self._orphans: Final[dict[int, tuple[float, ProcessTree | None]]] = {}
        # The marks of processes that were looked up, by pid and start time.
        self._marks: dict[tuple[int, float], Marks] = {}
        self._listed_at = -math.inf
        self._closed_tags: BoundedDict[int, None] = BoundedDict(_CLOSED_TAGS_MAX)
        self._next = _Scan()
        self._scanning = trio.Lock()

    def new(self, name: str, group: CgroupTree | None = None) -> ProcessTree:
        tree = ProcessTree(self, name, group)
        self.trees.add(tree)
        return tree

    def started(self, tree: ProcessTree, pid: int, session: int) -> None:
        self._tree_of[pid] = self._tree_of[session] = tree

    def discard(self, tree: ProcessTree) -> None:
        """Record that `tree` is closed: from now on `owner` kills what carries its marks."""
        self.trees.discard(tree)
        self._closed_tags[tree.tag] = None
        for pid in self._orphans_of(tree):
            del self._orphans[pid]

    async def scan(self) -> list[ProcStat]:
        """Return all processes of the system, from a scan that begins after this call.

        Calls during one scan share the next, so ending many trees takes little longer than ending
        one. Raises `OSError` if no descriptor is free.
        """
        scan = self._next
        async with self._scanning:
            if scan.found is None:
                self._next = _Scan()
                found = await collect(processes.read_all())
                scan.found = [process for process in found if process is not None]
                alive = {(process.pid, process.started) for process in scan.found}
                self._marks = {each: self._marks[each] for each in self._marks.keys() & alive}
            return scan.found

    async def marked(self, tree: ProcessTree, found: list[ProcStat]) -> set[int]:
        """Return the pids of those that have the tree's marks. Raises `OSError` as `scan`."""
        known = self._marks
        new = (each for each in found if (each.pid, each.started) not in known)
        for each, read in await collect((each, marks.read(each.pid)) for each in new):
            known[each.pid, each.started] = read
        return {
            each.pid
            for each in found
            if (has := known.get((each.pid, each.started))) is not None
            and (has.tag == tree.tag or has.terminal == tree.name)
        }

    def is_older(self, started: float) -> bool:
        """Return whether a program was started by a keeper that this one has replaced."""
        return self.parent != 1 and linux.ticks(started) < self.daemon.ticks

    def has_orphans_of(
        self, tree: ProcessTree, listed: Collection[int] | None = None
    ) -> bool | None:
        """Return whether any running orphan belongs to `tree`; None if that is unknown.

        Also True if orphans appear and end faster than they can be read. `listed` are the orphans'
        pids of at most `LISTED_MAX_S` ago, but after the tree's program was reaped. Orphans of
        closed trees are killed if any are found (see `owner`). Raises `OSError` if no descriptor is
        free.
        """
        if not linux.AVAILABLE or self.parent == 1:
            return None
        if any(map(self._runs, self._orphans_of(tree))):
            return True
        checked: set[int] = set()
        is_unknown = False
        for _ in range(_LISTINGS_MAX):
            orphans = self._list() if listed is None else {*listed}
            listed = None
            if orphans is None:
                return None
            if (now := processes.now()) > self._listed_at + LISTED_MAX_S:
                self._orphans.clear()
            self._listed_at = now
            for pid in self._orphans.keys() - orphans:
                del self._orphans[pid]
            new = orphans - self._orphans.keys() - checked
            verdicts = {self._verdict(pid, tree) for pid in new}
            if _Verdict.OURS in verdicts:
                return True
            is_unknown |= _Verdict.UNKNOWN in verdicts
            # What has ended may have forked after the listing, so list again.
            if _Verdict.ENDED not in verdicts:
                return None if is_unknown else False
            checked |= new
        return True

    def _verdict(self, pid: int, tree: ProcessTree) -> _Verdict:
        orphan = linux.read_stat(pid)
        if orphan is None or orphan.ppid != self.parent or orphan.zombie:
            return _Verdict.ENDED
        owner = self.owner(orphan, tree)
        if owner is tree:
            return _Verdict.OURS
        # What started before the tree's program has no descendants in the tree.
        is_known = owner is not None or pid in self._orphans or not tree.may_own(orphan)
        return _Verdict.OTHERS if is_known else _Verdict.UNKNOWN

    def _list(self) -> set[int] | None:
        children = self._children.read()
        return children and {pid for pid in children if not self._is_own(pid)}

    def _orphans_of(self, tree: ProcessTree) -> list[int]:
        return [pid for pid, (_, owner) in self._orphans.items() if owner is tree]

    def _runs(self, pid: int) -> bool:
        """Return whether a known orphan still runs; forget one that has ended."""
        found = linux.read_stat(pid)
        if found is None or found.zombie or found.started != self._orphans[pid][0]:
            del self._orphans[pid]
            return False
        return True

    def close(self) -> None:
        self._children.close()

    def orphans(self, found: list[ProcStat]) -> list[ProcStat]:
        """Return the children of `parent` among `found` that are neither programs nor leaders."""
        return [p for p in found if p.ppid == self.parent and not self._is_own(p.pid)]

    def owner(self, orphan: ProcStat, closing: ProcessTree) -> ProcessTree | None:
        """Return the tree to which `orphan` belongs, and record it; None if that is not certain.

        It is an open one or `closing`. An orphan with the marks of a closed tree is killed.
        """
        if closing.has(orphan):
            return self._record(orphan, closing)
        started, owner = self._orphans.get(orphan.pid, (None, None))
        if started == orphan.started:
            return owner
        likely = self._tree_of.get(orphan.sid)
        if likely in self.trees and likely.has(orphan):
            return self._record(orphan, likely)
        if owner := next((tree for tree in self.trees if tree.has(orphan)), None):
            return self._record(orphan, owner)
        return self._owner_by_evidence(orphan, closing)

    def _record(self, orphan: ProcStat, owner: ProcessTree) -> ProcessTree:
        if owner in self.trees:
            self._orphans[orphan.pid] = orphan.started, owner
        return owner

    def _owner_by_evidence(self, orphan: ProcStat, closing: ProcessTree) -> ProcessTree | None:
        trees = {*self.trees, closing}
        found = marks.read(orphan.pid)
        owner = _tree_with_marks(found, trees)
        if owner is None:
            tag = None if found.terminal is None else marks.tag(found.terminal)
            if found.tag in self._closed_tags or tag in self._closed_tags:
                with contextlib.suppress(OSError):
                    processes.send(orphan, signal.SIGKILL)
            elif found.detached:
                self._orphans[orphan.pid] = orphan.started, None
            elif self._sole_parent and orphan.ppid != 1:
                candidates = [tree for tree in trees if tree.may_own(orphan)]
                owner = candidates[0] if len(candidates) == 1 else None
        if owner is None:
            return None
        owner.recognise(orphan)
        return self._record(orphan, owner)

    def _is_own(self, pid: int) -> bool:
        """Return whether `pid` is that of an open tree's program, of a leader, or our own."""
        tree = self._tree_of.get(pid)
        if tree is None:
            return pid == os.getpid()
        return pid == tree.leader or (pid == tree.root and tree in self.trees)

    async def run(self, busy: Callable[[], bool]) -> None:
        """Reap orphans until cancelled; return at once if another process adopts them."""
        # Nothing is reaped while a program is being started (`busy`): it could be mistaken for an
        # orphan.
        if self.parent != os.getpid():
            return
        before: set[tuple[int, float]] = set()
        # When it ends, the receiver restores the handler that is set now. If that were the default
        # handler, Python would print an error if a child ended at that moment ("ignored due to race
        # condition").
        if signal.getsignal(signal.SIGCHLD) is signal.SIG_DFL:
            signal.signal(signal.SIGCHLD, _ignore_signal)
        with trio.open_signal_receiver(signal.SIGCHLD) as child_signals:
            async for _ in child_signals:
                while not busy():
                    await trio.sleep(_REAP_INTERVAL_S)
                    try:
                        orphans = await self._orphans_now()
                    except OSError:
                        continue  # out of descriptors just now: the next round tries again
                    zombies = {(p.pid, p.started) for p in orphans if p.zombie}
                    for pid, _started in zombies & before:
                        if not busy() and not self._is_own(pid):
                            _reap(pid)
                    before = zombies - before
                    if not before:
                        break

    async def _orphans_now(self) -> list[ProcStat]:
        children = self._children.read() if linux.AVAILABLE else None
        if children is None:
            return self.orphans(await self.scan())
        found = await collect(map(linux.read_stat, children))
        return self.orphans([process for process in found if process is not None])


def _tree_with_marks(found: marks.Marks, trees: Iterable[ProcessTree]) -> ProcessTree | None:
    by_tag = (tree for tree in trees if tree.tag == found.tag)
    by_name = (tree for tree in trees if tree.name == found.terminal)
    return next(by_tag, None) or next(by_name, None)


def _ignore_signal(_number: int, _frame: object) -> None:
    """Do nothing. `Subreaper.run` sets this handler of SIGCHLD in place of the default handler."""


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
