"""One terminal's process tree, tracked by descent: by parents, sessions, start times and marks.

`subreaper` has the rules by which a process belongs to a tree, and their limits. `cgroup_tree`
tracks the same processes by control group.
"""

import contextlib
import math
import signal
from collections.abc import Collection, Mapping
from functools import partial
from typing import Final, Protocol

import trio

from acpterm.pty import processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import marks
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.tree import Rlimits, collect, empty, retry_on_oserror

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


class Adopter(Protocol):
    """The members of `subreaper.Subreaper` that a `DescendantTree` uses."""

    @property
    def daemon(self) -> Daemon:
        """The daemon's identity, which marks the environment of programs."""

    async def scan(self) -> list[ProcStat]:
        """Return all processes of the system, from a scan that begins after this call."""

    def orphans(self, found: list[ProcStat]) -> list[ProcStat]:
        """Return the orphans among `found`, the processes that `scan` returned."""

    def owner(self, orphan: ProcStat, closing: "DescendantTree") -> "DescendantTree | None":
        """Return the tree to which `orphan` belongs; None if that is not certain.

        The tree is one of the open trees, or `closing`, which is no longer open during its `close`.
        """

    def has_orphans_of(
        self, tree: "DescendantTree", listed: Collection[int] | None = None
    ) -> bool | None:
        """Return whether any running orphan belongs to `tree`; None if that is unknown.

        `listed` are the pids of all orphans when the tree's program was reaped; None if unknown.
        """

    def started(self, tree: "DescendantTree", pid: int, session: int) -> None:
        """Record the pid of the program of `tree`, and the id of its session."""

    def discard(self, tree: "DescendantTree") -> None:
        """Remove `tree`, which is being closed, from the open trees."""


class DescendantTree:
    """The processes of the terminal with id `name`, tracked by descent.

    Implements `tree.ProcessTree`, without a control group. `adopter`, the daemon's `Subreaper`,
    finds orphans. `tag` is the soft `RLIMIT_LOCKS` that marks the processes. The *first child* is
    the terminal's program, and an *orphan* is a process whose parent has ended.
    """

    cgroup: int | None = None
    join: str | None = None

    def __init__(self, adopter: Adopter, name: str) -> None:
        self.name: Final = name
        self.tag: Final = marks.tag(name)
        self._adopter: Final = adopter
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
        self._is_over = False

    @property
    def environment(self) -> Mapping[str, str]:
        """The variables that mark the tree's processes."""
        return marks.environment(self.name, self._adopter.daemon)

    @property
    def rlimits(self) -> Rlimits:
        """The resource limit that marks the tree's processes; empty if none (`marks.rlimits`)."""
        return marks.rlimits(self.name)

    @property
    def root(self) -> int | None:
        """The program's pid; None before the program was started and after it was reaped."""
        return None if self._reaped_at is not None else self._pid

    def has(self, process: ProcStat) -> bool:
        """Return whether it is known that `process` belongs to the tree.

        The marks of the process are not read.
        """
        if process.pid == self.leader:
            return False
        identity = process.pid, process.started
        return self._is_root(process) or self._in_session(process) or identity in self._members

    def recognise(self, process: ProcStat) -> None:
        """Record that `process` belongs to the tree, so that `has` returns True for it."""
        self._members.add((process.pid, process.started))

    def may_own(self, orphan: ProcStat) -> bool:
        """Return whether `orphan` may belong to the tree, judged by its start time alone."""
        first, last = self._spawn_started - START_SLACK_S, self._spawn_ended + START_SLACK_S
        if first <= orphan.started <= last:
            return True
        return orphan.started >= self._program_started - START_SLACK_S

    @property
    def leader(self) -> int | None:
        """The pid of the leader of the terminal's session, if that is not the program.

        It belongs to no tree, since it must outlive the programs. None when it has ended.
        """
        ended_at = self._session_ended_at
        # The keeper ends it when it reports the end of the session.
        has_ended = ended_at is not None and processes.now() > ended_at + _LEADER_END_S
        return None if has_ended or self._session == self._pid else self._session

    def started(self, pid: int, started: float | None = None, session: int | None = None) -> None:
        """Record the pid and the start time of the terminal's program, and the id of its session.

        If `started` is None, the start time is read now; it stays unknown if it cannot be read. If
        `session` is None, the program leads its session.
        """
        self._spawn_ended = processes.now()
        self._pid = pid
        self._session = pid if session is None else session
        self._adopter.started(self, pid, self._session)
        if not started:
            with contextlib.suppress(OSError):
                found = processes.identity(pid)
                started = None if found is None else found.started
        self._pid_started = started

    def restore(
        self, pid: int, started: float, reaped_at: float | None, session: int | None = None
    ) -> None:
        """Record the program of a previous worker; `reaped_at` is as from `processes.now`."""
        self.started(pid, started, session)
        self._spawn_started = self._program_started = self._spawn_ended = started
        if reaped_at is not None:
            self.reaped(reaped_at)

    def begins(self) -> None:
        """Record that from now on the terminal's program may run, and may start processes."""
        self._program_started = processes.now()

    def reaped(self, at: float | None = None, orphans: Collection[int] | None = None) -> None:
        """Record that the program was reaped at the time `at`: from then on its pid may be reused.

        `at` is a time as `processes.now` returns it; None means now. `orphans` are the pids of all
        orphans then; None if unknown.
        """
        self._is_over = orphans is not None and not orphans
        self._listed = orphans
        self._reaped_at = processes.now() if at is None else at
        if self.leader is None:
            self.session_ended(self._reaped_at)

    def session_ended(self, at: float | None = None) -> None:
        """Record that the leader of the session was reaped: from then on its id may be reused."""
        if self._session_ended_at is None:
            self._session_ended_at = processes.now() if at is None else at

    def is_empty(self) -> bool | None:
        """Return whether no process of the tree runs any more; None if only `members` can tell.

        Raises `OSError` if the processes cannot be read.
        """
        if self.root is not None:
            found = processes.identity(self.root)
            if found is not None and self._is_root(found) and not found.zombie:
                return False
        # The first child has ended, so every remaining process is an orphan or descends from one.
        if not self._is_over:
            listed, self._listed = self._listed, None
            if processes.now() > (self._reaped_at or 0) + LISTED_MAX_S:
                listed = None
            has_orphans = self._adopter.has_orphans_of(self, listed)
            if has_orphans is None:
                return None
            # Without orphans, no process is left that could fork, so the tree stays empty.
            self._is_over = not has_orphans
        return self._is_over

    async def signal(self, number: int, *, without: Collection[int] = ()) -> None:
        """Send the signal `number` to each process of the tree whose pid is not in `without`.

        Raises `OSError` if the processes cannot be read.
        """
        for process in await self.members():
            if process.pid not in without:
                processes.send(process, number)

    async def kill(self) -> None:
        """Send SIGKILL to all processes of the tree, in rounds, until no process is left.

        Each round also finds processes that were forked during the previous round.
        """
        pause = _FIRST_KILL_POLL_S
        count_before = _SMALL_TREE_PROCESSES
        while not await retry_on_oserror(partial(empty, self)):
            members = await retry_on_oserror(self.members)
            if len(members) > count_before:
                members = await self._stop(members)
            count_before = len(members)
            for process in members:
                with contextlib.suppress(OSError):  # the next round tries again
                    processes.send(process, signal.SIGKILL)
            await trio.sleep(pause)
            pause = min(2 * pause, _LAST_KILL_POLL_S)

    async def _stop(self, members: list[ProcStat]) -> list[ProcStat]:
        """Stop all processes of the tree, so that they cannot fork; return the tree's processes.

        `members` are the processes known so far. Sends SIGSTOP in rounds until a round finds no new
        processes, at most `_STOP_ROUNDS_MAX` rounds.
        """
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
        """Remove this tree from the open trees, and kill the processes that still belong to it.

        An orphan without marks is killed, too, if it may come from this tree and cannot come from
        any open tree. Gives up after `_CLOSE_TIMEOUT_S` seconds.
        """
        self._adopter.discard(self)
        with trio.move_on_after(_CLOSE_TIMEOUT_S, shield=True):
            await self.kill()

    async def members(self) -> list[ProcStat]:
        """Return the running processes of the tree. Raises `OSError` if they cannot be read."""
        found = await self._adopter.scan()
        self._check_root(found)
        orphans = [p for p in self._adopter.orphans(found) if not p.zombie]
        owners = await collect(self._adopter.owner(orphan, self) for orphan in orphans)
        adopted = {p.pid for p, owner in zip(orphans, owners, strict=True) if owner is self}
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
        return members

    def _check_root(self, found: list[ProcStat]) -> None:
        """Record that the program was reaped, if another process in `found` now has its pid.

        `found` are all processes of the system. The check is needed, since the pid may be reused
        before this process is notified that the program was reaped.
        """
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
