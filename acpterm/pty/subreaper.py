"""Trees without control groups: by descent, session and identity.

What belongs to the tree of a terminal whose first child was `root`:

- `root`, while its pid is ours;
- every process of root's session: its id is root's pid, which the system does not use again while
  the session has a member. Once root is reaped, that holds for processes that had started by then;
- the descendants of all these, and of every process once seen to belong;
- orphans. A process that leaves the session and whose parent ends becomes the child of the nearest
  subreaper, which is this process (prctl(2), PR_SET_CHILD_SUBREAPER; elsewhere, of pid 1). It is
  the tree's if its environment says so (`ACPTERM_TERMINAL_ID`), or if no other tree can have it:
  it started in this one's lifetime and in no other's that is still open.

An orphan that two open trees may own, that wiped its environment and that nobody ever looked at
while its parent lived, is the only one that waits: for the last of these trees to be closed.
Nothing outlives the daemon. Orphans that end are reaped here, `Subreaper.run`, and only here.
"""

import contextlib
import math
import os
import signal
from collections.abc import Callable, Iterable
from typing import Final

import trio

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tree import insist

# Seconds between two rounds that reap orphans; one that is a zombie in two rounds is nobody's.
_ROUND = 1.0
# Start times are in clock ticks, and the system's clock is read a moment later.
_SLACK = 0.02
# Seconds that closing a tree may take to end what only then can be nobody else's.
_CLOSING = 1.0


class _Look:
    """A look at all processes, shared by those who wait for it."""

    found: list[ProcStat] | None = None


class Subreaper:
    """Adopts the orphans of all trees. `run` reaps them; `new` makes a tree."""

    def __init__(self) -> None:
        self.parent = os.getpid() if linux.become_subreaper() else 1
        self.trees: set[ProcessTree] = set()
        self._not_orphans: list[Callable[[], Iterable[int]]] = []
        self._next = _Look()
        self._looking = trio.Lock()

    def new(self, name: str) -> "ProcessTree":
        """Make the tree of the terminal `name`."""
        tree = ProcessTree(self, name)
        self.trees.add(tree)
        return tree

    async def look(self) -> list[ProcStat]:
        """Read all processes, as they are after this call.

        Whoever asks while a look is under way shares the next one with all others who do: many
        trees that end at once cost little more than one.
        """
        look = self._next
        async with self._looking:
            if look.found is None:
                self._next = _Look()
                look.found = await trio.to_thread.run_sync(processes.snapshot)
            return look.found

    async def whose(self, pid: int) -> str | None:
        """Give the name of the tree that a process is of, or one that it descends from."""
        found = {process.pid: process for process in await self.look()}
        line = []
        while (process := found.pop(pid, None)) and pid != os.getpid():
            line.append(process)
            pid = process.ppid
        for tree in self.trees:
            if any(tree.has(process) for process in line):
                return tree.name
        return await trio.to_thread.run_sync(self._marked, line)

    def _marked(self, line: list[ProcStat]) -> str | None:
        return next((tree.name for tree in self.trees if tree.marks(line)), None)

    def spare(self, pids: Callable[[], Iterable[int]]) -> None:
        """Have the children that `pids` names, now or later, never taken for orphans."""
        self._not_orphans.append(pids)

    def orphans(self, found: list[ProcStat]) -> list[ProcStat]:
        """Give those whom nobody in this process waits for."""
        known = self._known()
        return [p for p in found if p.ppid == self.parent and p.pid not in known]

    def _known(self) -> set[int | None]:
        spared = (pid for pids in self._not_orphans for pid in pids())
        return {*spared, *(tree.root for tree in self.trees)}

    async def run(self, busy: Callable[[], bool]) -> None:
        """Reap orphans until cancelled; not while `busy`: then a child may not be known yet."""
        if self.parent != os.getpid():
            return
        before: set[tuple[int, float]] = set()
        with trio.open_signal_receiver(signal.SIGCHLD) as deaths:
            async for _ in deaths:
                while not busy():
                    await trio.sleep(_ROUND)
                    try:
                        found = await self.look()
                    except OSError:
                        continue  # no descriptor is left just now; there is another round
                    dead = {(p.pid, p.started) for p in self.orphans(found) if p.zombie}
                    for pid, _started in dead & before:
                        if not busy() and pid not in self._known():
                            _reap(pid)
                    before = dead - before
                    if not before:
                        break


def _reap(pid: int) -> None:
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


class ProcessTree:
    """One terminal's processes. See `tree.Tree`."""

    cgroup: int | None = None
    join: str | None = None

    def __init__(self, subreaper: Subreaper, name: str) -> None:
        self.name: Final = name
        self._subreaper = subreaper
        self._marker = f"ACPTERM_TERMINAL_ID={name}".encode()
        self._seen: set[tuple[int, float]] = set()
        self._pid: int | None = None
        # Who may be of this tree, by when it started: while the first child was being made, which
        # may be any new child of this process then; and since its program began.
        self._making = processes.now()
        self._made = math.inf
        self._begun = math.inf
        self._reaped_at: float | None = None

    @property
    def root(self) -> int | None:
        """The first child's pid while it is ours."""
        return None if self._reaped_at is not None else self._pid

    def has(self, process: ProcStat) -> bool:
        """Whether a process is of the tree, as far as that is known without a look."""
        identity = process.pid, process.started
        return self._is_root(process) or self._in_session(process) or identity in self._seen

    def marks(self, line: list[ProcStat]) -> set[int]:
        """Give the pids of those whose environment says that they are of the tree."""
        return {p.pid for p in line if processes.has_in_environment(p.pid, self._marker)}

    def started(self, pid: int) -> None:
        """Learn the first child's pid."""
        self._pid = pid
        self._made = processes.now()

    def begins(self) -> None:
        """Learn that whoever starts from now on may be one of the tree's."""
        self._begun = processes.now()

    def reaped(self) -> None:
        """Learn that the first child's pid is no longer ours."""
        self._reaped_at = processes.now()

    async def empty(self) -> bool:
        """Whether nobody is left."""
        return not await self._members()

    async def signal(self, number: int) -> None:
        """Signal each process by its identity."""
        for process in await self._members():
            processes.send(process, number)

    async def kill(self) -> None:
        """SIGKILL who is there until nobody is: what forks meanwhile is there the next time."""
        pause = 0.002
        while members := await insist(self._members):
            for process in members:
                with contextlib.suppress(OSError):  # then the next time
                    processes.send(process, signal.SIGKILL)
            await trio.sleep(pause)
            pause = min(2 * pause, 0.1)

    async def close(self) -> None:
        """Forget the tree, and end those that it was the last to share with others."""
        self._subreaper.trees.discard(self)
        with trio.move_on_after(_CLOSING, shield=True):
            await self.kill()

    async def _members(self) -> list[ProcStat]:
        found = await self._subreaper.look()
        orphans = [p for p in self._subreaper.orphans(found) if not p.zombie]
        marked = await trio.to_thread.run_sync(self.marks, orphans) if orphans else set()
        mine = {p.pid for p in found if self.has(p) or p.pid in marked}
        mine |= {p.pid for p in orphans if p.pid not in mine and self._is_last_resort_of(p)}
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

    def _is_root(self, process: ProcStat) -> bool:
        return process.pid == self.root

    def _in_session(self, process: ProcStat) -> bool:
        if process.sid != self._pid or self._pid is None:
            return False
        return self._reaped_at is None or process.started <= self._reaped_at + _SLACK

    def _is_last_resort_of(self, process: ProcStat) -> bool:
        """Whether an orphan that says nothing of itself can be nobody else's."""
        if process.ppid == 1 or not self._covers(process):
            return False
        others = (tree for tree in self._subreaper.trees if tree is not self)
        return not any(tree._covers(process) for tree in others)  # noqa: SLF001  the same class

    def _covers(self, process: ProcStat) -> bool:
        while_making = self._making - _SLACK <= process.started <= self._made + _SLACK
        return while_making or process.started >= self._begun - _SLACK
