"""The processes of one terminal, tracked by descent and by control group; and how to end them.

`subreaper` has the rules by which a process belongs to a tree by descent (parents, sessions, start
times, marks), and their limits. A forked process is also in the control group of its parent, until
a system manager or the process itself moves it to another group: as root, or if the user owns the
other group's directory. A process that was moved is still tracked by descent. Without control
groups, descent alone tracks all. A tree signals exactly its own processes.
"""

import math
import signal
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import trio

from acpterm.pty import processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import marks
from acpterm.runtime.descriptors import EXHAUSTED, reserve

if TYPE_CHECKING:
    from acpterm.pty.tracking.cgroup_tree import CgroupTree
    from acpterm.pty.tracking.subreaper import Subreaper

T = TypeVar("T")

# `wait_empty` polls at intervals that grow from the first value to the second.
_FIRST_POLL_S = 0.005
_LAST_POLL_S = 0.1
# How long after SIGTERM it is first checked whether only interactive shells are left.
_HANG_UP_S = 0.05
_RETRY_S = 0.05
# A scan blocks the event loop for about this time before it lets other tasks run.
_SLICE_S = 0.001
# The tolerance when start times are compared: they are rounded to clock ticks (10 ms).
START_SLACK_S: Final = 0.02
# The longest time for which a list of pids is used: later, a pid may have been reused.
LISTED_MAX_S: Final = 1.0

_LEADER_END_S: Final = 1.0
# How long `close` kills orphans that can be attributed to the tree only when it is closed.
_CLOSE_TIMEOUT_S: Final = 1.0
# A tree of more processes than this, or one that has grown since the previous round of signals, is
# stopped before it is killed. Otherwise it could fork faster than its processes are killed.
_SMALL_TREE_PROCESSES: Final = 16
_STOP_ROUNDS_MAX: Final = 10
_FIRST_KILL_POLL_S: Final = 0.002
_LAST_KILL_POLL_S: Final = 0.1

Rlimits = tuple[tuple[int, int, int], ...]


class ProcessTree:
    """All processes of one terminal; `trees.Trees` creates it.

    The caller first creates the tree, then starts the program with the tree's `cgroup`,
    `environment` and `rlimits`. It calls `begins` and `started`, in any order; then `reaped`; then
    `close`. The *first child* is the program, and an *orphan* is a process whose parent has ended.
    """

    def __init__(
        self, subreaper: "Subreaper", name: str, group: "CgroupTree | None" = None
    ) -> None:
        self.name: Final = name
        # The soft `RLIMIT_LOCKS` that marks the processes.
        self.tag: Final = marks.tag(name)
        self._subreaper: Final = subreaper
        self._group: Final = group
        self._members: set[tuple[int, float]] = set()
        self._pid: int | None = None
        self._pid_started: float | None = None
        # A process without marks may belong to this tree if it started in one of two periods: from
        # `_spawn_started` to `_spawn_ended`, since any new child of the parent may then be the
        # first child; or after `_program_started`.
        self._spawn_started = processes.now()
        self._spawn_ended = math.inf
        self._program_started = math.inf
        self._reaped_at: float | None = None
        # The orphans of all trees when the program was reaped, until they are looked up.
        self._listed: Collection[int] | None = None
        self._session: int | None = None
        self._session_ended_at: float | None = None
        # Whether a keeper that was killed has started the program: then only marks tell an orphan.
        self._is_left = False
        self._is_over = False

    @property
    def cgroup(self) -> int | None:
        """A descriptor of the control group's directory, until the program was started."""
        return None if self._group is None else self._group.cgroup

    @property
    def join(self) -> str | None:
        """The file to which a process writes `0` to join the control group."""
        return None if self._group is None else self._group.join

    @property
    def environment(self) -> Mapping[str, str]:
        return marks.environment(self.name, self._subreaper.daemon)

    @property
    def rlimits(self) -> Rlimits:
        return marks.rlimits(self.name)

    @property
    def root(self) -> int | None:
        """The program's pid; None before the program was started and after it was reaped."""
        return None if self._reaped_at is not None else self._pid

    def has(self, process: ProcStat) -> bool:
        """Return whether it is known, without its marks, that `process` belongs to the tree."""
        if process.pid == self.leader:
            return False
        identity = process.pid, process.started
        return self._is_root(process) or self._in_session(process) or identity in self._members

    def recognise(self, process: ProcStat) -> None:
        self._members.add((process.pid, process.started))

    def may_own(self, orphan: ProcStat) -> bool:
        """Return whether `orphan` may belong to the tree by its start time."""
        if self._is_left:
            return False
        first, last = self._spawn_started - START_SLACK_S, self._spawn_ended + START_SLACK_S
        if first <= orphan.started <= last:
            return True
        return orphan.started >= self._program_started - START_SLACK_S

    @property
    def leader(self) -> int | None:
        """The leader of the session, if it is not the program. It must outlive the programs."""
        ended_at = self._session_ended_at
        # The keeper ends it when it reports the end of the session.
        has_ended = ended_at is not None and processes.now() > ended_at + _LEADER_END_S
        return None if has_ended or self._session == self._pid else self._session

    def started(self, pid: int, started: float | None = None, session: int | None = None) -> None:
        """Record that the program was started. Without `session`, it leads its session."""
        self._spawn_ended = processes.now()
        if self._group is not None:
            self._group.started()
        self._pid = pid
        self._session = pid if session is None else session
        self._subreaper.started(self, pid, self._session)
        if not started:
            with suppress(OSError):
                found = processes.identity(pid)
                started = None if found is None else found.started
        self._pid_started = started

    def restore(
        self, pid: int, started: float, reaped_at: float | None, session: int | None = None
    ) -> None:
        """Record the program of a previous worker."""
        self.started(pid, started, session)
        self._spawn_started = self._program_started = self._spawn_ended = started
        self._is_left = self._subreaper.is_older(started)
        if reaped_at is not None:
            self.reaped(reaped_at)

    def begins(self) -> None:
        """Record that from now on the program may run, and may start processes."""
        self._program_started = processes.now()

    def reaped(self, at: float | None = None, orphans: Collection[int] | None = None) -> None:
        """Record that the program was reaped: from then on its pid may be reused.

        `at` is as from `processes.now`. `orphans` are all orphans of any terminal then, if known.
        """
        self._is_over = orphans is not None and not orphans
        self._listed = orphans
        self._reaped_at = processes.now() if at is None else at
        if self.leader is None:
            self.session_ended(self._reaped_at)

    def session_ended(self, at: float | None = None) -> None:
        """Record that the session's leader was reaped: from then on its id may be reused."""
        if self._session_ended_at is None:
            self._session_ended_at = processes.now() if at is None else at

    def is_empty(self) -> bool | None:
        """Return whether none runs any more; None if only `members` can tell. Raises `OSError`."""
        if self.root is not None:
            found = processes.identity(self.root)
            if found is not None and self._is_root(found) and not found.zombie:
                return False
        if self._is_left:
            return None
        # The first child has ended, so every remaining process is an orphan or descends from one.
        if not self._is_over:
            listed, self._listed = self._listed, None
            if processes.now() > (self._reaped_at or 0) + LISTED_MAX_S:
                listed = None
            has_orphans = self._subreaper.has_orphans_of(self, listed)
            if has_orphans is None:
                # All processes of the group descend from a program or an orphan.
                has_processes = self._group is not None and not self._group.is_empty()
                return False if has_processes else None
            # Without orphans, no process is left that could fork, so the tree stays empty.
            self._is_over = not has_orphans
        return self._is_over

    async def signal(self, number: int) -> None:
        """Send a signal once to every process. Raises `OSError` if they cannot be read."""
        signalled: set[int] = set()
        if self._group is not None:
            signalled.update(self._group.pids())
            await self._group.signal(number)
        for process in await self.members():
            if process.pid not in signalled:
                processes.send(process, number)

    async def kill(self, *, by_group: bool = True) -> None:
        """Kill all processes, in rounds, until none is left, however long that takes."""
        pause = _FIRST_KILL_POLL_S
        count_before = _SMALL_TREE_PROCESSES
        while not await retry_on_oserror(partial(empty, self)):
            if self._group is not None and by_group:
                await self._group.kill()
                if await retry_on_oserror(partial(empty, self)):
                    return
            members = await retry_on_oserror(self.members)
            if len(members) > count_before:
                members = await self._stop(members)
            count_before = len(members)
            for process in members:
                with suppress(OSError):  # the next round tries again
                    processes.send(process, signal.SIGKILL)
            await trio.sleep(pause)
            pause = min(2 * pause, _LAST_KILL_POLL_S)

    async def _stop(self, members: list[ProcStat]) -> list[ProcStat]:
        """Stop all processes, so that they cannot fork, until a round finds no new ones."""
        stopped: set[ProcStat] = set()
        for _ in range(_STOP_ROUNDS_MAX):
            running = set(members) - stopped
            if not running:
                break
            for process in running:
                with suppress(OSError):
                    processes.send(process, signal.SIGSTOP)
            stopped |= running
            members = await retry_on_oserror(self.members)
        return members

    async def close(self) -> None:
        """Stop tracking the tree, when it is empty or does not end; remove its group."""
        # Then an orphan without marks is killed, too, if it may come from this tree and cannot come
        # from any open tree.
        self._subreaper.discard(self)
        with trio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            # Not by the group: it would wait for a process there that cannot be killed.
            await self.kill(by_group=False)
        if self._group is not None:
            await self._group.close()

    async def members(self) -> list[ProcStat]:
        """Return the running processes of the tree. Raises `OSError` if they cannot be read."""
        inside = [] if self._group is None else await self._group.members()
        found = await self._subreaper.scan()
        self._check_root(found)
        orphans = [p for p in self._subreaper.orphans(found) if not p.zombie]
        owners = await collect(self._subreaper.owner(orphan, self) for orphan in orphans)
        adopted = {p.pid for p, owner in zip(orphans, owners, strict=True) if owner is self}
        if self._is_left:
            start = self._spawn_started - START_SLACK_S
            later = [p for p in found if p.started >= start and p.pid != self.leader]
            adopted |= await self._subreaper.marked(self, later)
        pids = {p.pid for p in found if self.has(p)} | adopted
        children: dict[int, list[int]] = {}
        for p in found:
            children.setdefault(p.ppid, []).append(p.pid)
        pending = list(pids)
        while pending:
            for pid in children.get(pending.pop(), ()):
                if pid not in pids:
                    pids.add(pid)
                    pending.append(pid)
        members = [p for p in found if p.pid in pids and not p.zombie]
        self._members = {(p.pid, p.started) for p in members}
        return list({p.pid: p for p in (*inside, *members)}.values())

    def _check_root(self, found: list[ProcStat]) -> None:
        # The pid may be reused before this process is notified that the program was reaped.
        for process in found:
            if process.pid == self.root and not self._is_root(process):
                self.reaped(process.started - 2 * START_SLACK_S)

    def _is_root(self, process: ProcStat) -> bool:
        is_same_start = self._pid_started is None or process.started == self._pid_started
        return process.pid == self.root and is_same_start

    def _in_session(self, process: ProcStat) -> bool:
        if process.sid != self._session or self._session is None:
            return False
        ended_at = self._session_ended_at
        return ended_at is None or process.started <= ended_at + START_SLACK_S


async def empty(tree: ProcessTree) -> bool:
    """Return whether no process of the tree runs any more. Raises `OSError`."""
    await trio.lowlevel.checkpoint()
    is_empty = tree.is_empty()
    return not await tree.members() if is_empty is None else is_empty


async def end(tree: ProcessTree, grace: float) -> None:
    """End all processes of the tree: SIGTERM, and SIGKILL if some are left after `grace` seconds.

    If cancelled, the remaining processes keep running.
    """
    if await retry_on_oserror(partial(empty, tree)):
        return
    await retry_on_oserror(partial(tree.signal, signal.SIGTERM))
    # Stopped processes do not act on SIGTERM.
    await retry_on_oserror(partial(tree.signal, signal.SIGCONT))
    pause = _HANG_UP_S
    with trio.move_on_after(grace):
        while True:
            with trio.move_on_after(pause):
                await wait_empty(tree)
                return
            await retry_on_oserror(partial(_hang_up, tree))
            pause *= 2  # each look reads all processes of the system
    await tree.kill()


async def _hang_up(tree: ProcessTree) -> None:
    """Send SIGHUP if only interactive shells are left, which ignore SIGTERM."""
    left = await tree.members()
    # A shell passes SIGHUP on to its jobs, which must have their time to act on SIGTERM.
    if all(processes.is_interactive_shell(process.pid) for process in left):
        for process in left:
            processes.send(process, signal.SIGHUP)


async def wait_empty(tree: ProcessTree) -> None:
    pause = _FIRST_POLL_S
    while not await retry_on_oserror(partial(empty, tree)):
        await trio.sleep(pause)
        pause = min(2 * pause, _LAST_POLL_S)


async def retry_on_oserror(step: Callable[[], Awaitable[T]]) -> T:
    """Call `step` until it does not raise `OSError`; return its result."""
    # Without a free descriptor, some of the reserved ones are lent to the next call: processes must
    # be found and killed even then.
    while True:
        try:
            return await step()
        except OSError as error:
            if error.errno in EXHAUSTED:
                with suppress(OSError), reserve.lent():
                    return await step()
            await trio.sleep(_RETRY_S)


async def collect(steps: Iterable[T]) -> list[T]:
    """Return the items of `steps`; let other tasks run after each millisecond of work."""
    # Not in a thread: at the user's process limit no thread can be started, but processes must be
    # found and killed.
    await trio.lowlevel.checkpoint()
    found: list[T] = []
    end = time.perf_counter() + _SLICE_S
    for item in steps:
        found.append(item)
        if time.perf_counter() > end:
            await trio.lowlevel.checkpoint()
            end = time.perf_counter() + _SLICE_S
    return found
