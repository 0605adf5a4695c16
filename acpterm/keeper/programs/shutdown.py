"""Kill all programs when the keeper shuts down."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import os
import time

from acpterm.keeper.programs import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from acpterm.keeper.programs.terminal import HeldTerminal
    from acpterm.keeper.programs.terminals import HeldTerminals

ENDING_MAX_S = 2.0
_ROUND_S = 0.002
_ROUND_MAX_S = 0.05
# The tolerance for start times, which are rounded to clock ticks (10 ms).
_START_SLACK_S = 0.02


def end_programs(terminals: HeldTerminals) -> None:
    """Kill all programs with their groups and sessions, and all children, until none is left."""
    # Orphans of killed processes become children of the keeper, a subreaper: the next round kills
    # them.
    unreaped = terminals.by_pid
    # By the id of the session: the start time of its leader (0.0 if the leader still has the id),
    # and the time until which the id was not reused.
    sessions = (
        {
            terminal.child.pid: (terminal.child.started, terminal.exit[3])
            for terminal in terminals.by_name.values()
            if terminal.exit is not None
        }
        | {
            pid: (terminal.child.started, float("inf"))
            for pid, terminal in unreaped.items()
            if terminal.child.exists()
        }
        | {
            terminal.leader.pid: (0.0, float("inf"))
            for terminal in terminals.by_name.values()
            if terminal.leader is not None
        }
    )
    deadline = time.monotonic() + ENDING_MAX_S
    pause = _ROUND_S
    while _kill_round(sessions, unreaped) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _ROUND_MAX_S)


def _kill_round(
    sessions: dict[int, tuple[float, float]], unreaped: dict[int, HeldTerminal]
) -> bool:
    """Kill all that is left, and reap what has ended; return whether any process may be left."""
    for pid, terminal in tuple(unreaped.items()):
        if terminal.child.exists():
            _kill(os.killpg, pid)
        else:
            del unreaped[pid]
    members = set(_session_members(sessions))
    children = set(system.children_of_this_process() or unreaped)
    for pid in members | children:
        _kill(os.kill, pid)
    for pid in children:
        try:
            reaped, _ = os.waitpid(pid, os.WNOHANG)
        except ChildProcessError:
            reaped = pid
        if reaped:
            unreaped.pop(pid, None)
    return bool(members or unreaped or system.children_of_this_process())


def _session_members(sessions: dict[int, tuple[float, float]]) -> Iterator[int]:
    """Yield the pids of the running processes in the programs' sessions.

    `sessions` has, by id, the leader's start (0.0 if unknown) and the time at which a keeper reaped
    it. After that, a new session may get the same id: all its members were started later, or its
    leader was started at another time. The second is needed because the time is recorded too late
    if the program ended while no keeper was running.
    """
    if not system.LINUX or not sessions:
        return
    found: dict[int, list[tuple[float, int]]] = {}
    for entry in os.listdir("/proc"):
        stat = system.read_stat(int(entry)) if entry.isdigit() else None
        if stat is not None and stat[0] not in b"ZX" and stat[1] in sessions:
            found.setdefault(stat[1], []).append((stat[2], int(entry)))
    for session, members in found.items():
        started, known_until = sessions[session]
        is_reused = started and any(
            pid == session and abs(start - started) > _START_SLACK_S for start, pid in members
        )
        if not is_reused and min(members)[0] <= known_until + _START_SLACK_S:
            yield from (pid for _, pid in members)


def _kill(kill: Callable[[int, int], None], pid: int) -> None:
    try:
        kill(pid, _signal.SIGKILL)
    except OSError:
        return
