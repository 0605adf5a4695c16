"""The process that starts all programs and adopts all orphans. Needs no control groups.

That process is called the *parent*; it is this process or the keeper. The parent is a subreaper
(prctl(2), PR_SET_CHILD_SUBREAPER): an orphan of any tree becomes a child of the parent, so every
process of every tree is a descendant of the parent at all times. The tree of a terminal with the
program `root` consists of:

- `root`, known by pid and start time, until it is reaped;
- every process of root's session. The session's id is root's pid, which the system does not reuse
  while the session has a member. Once root is reaped, only those that started before that belong to
  the tree;
- the descendants of these processes, and of every process that once was a member of the tree;
- orphans that carry the terminal's marks (`marks`): a process that leaves the session, whose
  parent ends and that clears its environment is still recognised by its resource limit;
- orphans without any mark that started during the lifetime of this tree, and not during that of
  another open tree, one that is not closed yet.

One case cannot be attributed: a process that has left the session, has cleared its environment, has
reset the resource limit, and was not seen by any scan while its parent lived. If only one tree is
open, the last rule attributes the process to that tree. Otherwise the process is killed when the
last tree that may own it closes. On systems other than Linux the only mark is the environment.

Making each program a subreaper would also keep descent visible, but would harm programs: a program
that waits for *any* child would also wait for adopted orphans, and a program that waits for
specific children would collect zombies of adopted orphans.

The parent reaps orphans that have ended: `Subreaper.run` if the parent is this process, otherwise
the keeper.
"""

import contextlib
import os
import signal
from collections.abc import Callable, Iterable
from typing import Final

import trio

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.descendant_tree import DescendantTree
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.tree import collect
from acpterm.runtime.bounded_dict import BoundedDict

# Seconds between two rounds that reap orphans. An orphan that is a zombie in two rounds has no
# other parent.
_REAP_INTERVAL_S: Final = 1.0
_CLOSED_TAGS_MAX: Final = 4096
# How often the parent's children are listed, at most, until the list has no new ones.
_LISTINGS_MAX: Final = 20


class _Scan:
    """One scan of all processes of the system, shared by the callers that wait for its result."""

    found: list[ProcStat] | None = None


class Subreaper:
    """A daemon's open (not yet closed) trees, and the *parent*: the process that adopts orphans.

    `parent` is the pid of the parent, which also starts all programs. If it is None, this process
    becomes the parent, and `run` reaps orphans. `sole_parent` is true if all children of the parent
    belong to trees, except for excluded ones (`exclude`). Then an orphan without marks can be
    attributed to a tree by its start time. `socket_path` is the path of the socket on which the
    daemon listens, if any.
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
        self._closed_tags: BoundedDict[int, None] = BoundedDict(_CLOSED_TAGS_MAX)
        self._next = _Scan()
        self._scanning = trio.Lock()

    def new(self, name: str) -> DescendantTree:
        """Create the tree of the terminal with id `name`."""
        tree = DescendantTree(self, name)
        self.trees.add(tree)
        return tree

    def adopt(self, name: str, pid: int, started: float, reaped_at: float | None) -> DescendantTree:
        """Create the tree of the terminal with id `name`, which a previous worker created.

        `pid` and `started` (as in `ProcStat`) identify the terminal's program. `reaped_at` is the
        `processes.now` time at which it was reaped; None if it was not.
        """
        tree = self.new(name)
        tree.restore(pid, started, reaped_at)
        return tree

    def discard(self, tree: DescendantTree) -> None:
        """Record that `tree` is closed; from then on, `owner` kills orphans with its marks."""
        self.trees.discard(tree)
        self._closed_tags[tree.tag] = None

    async def scan(self) -> list[ProcStat]:
        """Return all processes of the system, from a scan that begins after this call.

        All calls during a scan share the next scan, so that ending many trees at the same time
        takes little more than ending one.
        """
        scan = self._next
        async with self._scanning:
            if scan.found is None:
                self._next = _Scan()
                found = await collect(processes.read_all())
                scan.found = [process for process in found if process is not None]
            return scan.found

    def has_orphans_of(self, tree: DescendantTree) -> bool | None:
        """Return whether any running orphan belongs to `tree`; None if that is unknown.

        Checks the children of the process `self.parent`, without the programs of open trees and the
        excluded processes. A program that is just being started is in no tree yet, so it counts as
        an orphan. Returns True if orphans appear and end faster than they can be read. May kill an
        orphan of a closed tree. Raises `OSError`.
        """
        if not linux.AVAILABLE or self.parent == 1:
            return None
        checked = self._non_orphans()
        for _ in range(_LISTINGS_MAX):
            children = linux.children(self.parent)
            if children is None:
                return None
            is_settled = True
            for pid in children - checked:
                orphan = linux.read_stat(pid)
                if orphan is None or orphan.ppid != self.parent:
                    is_settled = False
                    continue
                owner = self.owner(orphan, tree)
                if not orphan.zombie and (owner is None or owner is tree):
                    return None if owner is None else True
                # An orphan that ended before it was read may have forked after the listing.
                if owner is None or owner is tree:
                    is_settled = False
            if is_settled:
                return False
            checked |= children
        return True

    def exclude(self, pids: Callable[[], Iterable[int]]) -> None:
        """Never treat a process whose pid is in `pids()` as an orphan of a terminal.

        `pids` is called whenever orphans are searched for.
        """
        self._excluded.append(pids)

    def orphans(self, found: list[ProcStat]) -> list[ProcStat]:
        """Return the orphans among `found`, the processes that `scan` returned.

        They are the children of the process `parent`, except for the programs of open trees and for
        excluded processes (`exclude`).
        """
        excluded = self._non_orphans()
        return [p for p in found if p.ppid == self.parent and p.pid not in excluded]

    def owner(self, orphan: ProcStat, closing: DescendantTree) -> DescendantTree | None:
        """Return the tree that an orphan belongs to; None if that is not certain.

        The orphan is recorded in that tree. The result is `closing`, which may be in the middle of
        its `close`, or a tree that has not been closed. If the marks are those of another tree,
        which was closed, kills the orphan and returns None.
        """
        trees = {*self.trees, closing}
        if owner := next((tree for tree in trees if tree.has(orphan)), None):
            return owner
        found = marks.read(orphan.pid)
        owner = _tree_with_marks(found, trees)
        if owner is None:
            tag = None if found.terminal is None else marks.tag(found.terminal)
            if found.tag in self._closed_tags or tag in self._closed_tags:
                with contextlib.suppress(OSError):
                    processes.send(orphan, signal.SIGKILL)
            elif self._sole_parent and orphan.ppid != 1 and not found.detached:
                candidates = [tree for tree in trees if tree.may_own(orphan)]
                owner = candidates[0] if len(candidates) == 1 else None
        if owner is not None:
            owner.recognise(orphan)
        return owner

    def _non_orphans(self) -> set[int]:
        excluded = {pid for pids in self._excluded for pid in pids()}
        roots = {tree.root for tree in self.trees if tree.root is not None}
        return excluded | roots | {os.getpid()}

    async def run(self, busy: Callable[[], bool]) -> None:
        """Reap orphans until cancelled; return at once if this process is not their parent.

        Nothing is reaped while `busy()` is true: a program is then being started, which could be
        taken for an orphan.
        """
        if self.parent != os.getpid():
            return
        before: set[tuple[int, float]] = set()
        # The receiver restores this handler in the end. If that were the default, Python would
        # print an error about a child that ends just then ("ignored due to race condition").
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
                        if not busy() and pid not in self._non_orphans():
                            _reap(pid)
                    before = zombies - before
                    if not before:
                        break

    async def _orphans_now(self) -> list[ProcStat]:
        children = linux.children(self.parent) if linux.AVAILABLE else None
        if children is None:
            return self.orphans(await self.scan())
        found = await collect(map(linux.read_stat, children))
        return self.orphans([process for process in found if process is not None])


def _tree_with_marks(found: marks.Marks, trees: Iterable[DescendantTree]) -> DescendantTree | None:
    by_tag = (tree for tree in trees if tree.tag == found.tag)
    by_name = (tree for tree in trees if tree.name == found.terminal)
    return next(by_tag, None) or next(by_name, None)


def _ignore_signal(_number: int, _frame: object) -> None:
    """Do nothing."""


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)
