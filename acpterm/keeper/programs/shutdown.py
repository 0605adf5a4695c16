"""Kill all programs when the keeper shuts down."""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # typeshed has none
import os
import time

from acpterm.keeper.programs import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from acpterm.keeper.programs.terminal import Terminal
    from acpterm.keeper.programs.terminals import Terminals

ENDING_MAX_S = 2.0
_ROUND_S = 0.002
_ROUND_MAX_S = 0.05


def end_programs(terminals: Terminals) -> None:
    """Kill every program with its process group and session, and every child of the keeper.

    Orphans of killed processes become children of the keeper, which is a subreaper, and are killed
    in the next round. Returns when no process is left, or after `ENDING_MAX_S` seconds.
    """
    roots = {
        terminal.child.pid for terminal in terminals.by_name.values()
    } | terminals.by_pid.keys()
    deadline = time.monotonic() + ENDING_MAX_S
    pause = _ROUND_S
    while _kill_round(roots, terminals.by_pid) and time.monotonic() < deadline:
        time.sleep(pause)
        pause = min(2 * pause, _ROUND_MAX_S)


def _kill_round(roots: set[int], unreaped: dict[int, Terminal]) -> bool:
    """Kill all programs and all children of the keeper, and reap those that have ended.

    Returns whether any process may be left. `roots` are the pids of all programs. `unreaped` has,
    by pid, the terminals whose program is not reaped; programs that this call reaps are removed.
    """
    members = set(_session_members(roots, unreaped.keys()))
    children = set(system.children_of_this_process()) or set(unreaped)
    for pid in unreaped:
        _kill(os.killpg, pid)
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


def _session_members(roots: set[int], unreaped: Collection[int]) -> Iterator[int]:
    """Yield the pids of the living processes in all sessions whose leader is or was a program.

    A session's id is the pid of its leader, which the kernel does not reuse while the session has
    members. So if a process has the pid of a root that was reaped, the pid was reused, and that
    session belongs to another program.
    """
    if not system.LINUX or not roots:
        return
    found: dict[int, list[int]] = {}
    for entry in os.listdir("/proc"):
        if entry.isdigit():
            session = _session_of(int(entry))
            if session in roots:
                found.setdefault(session, []).append(int(entry))
    for root, members in found.items():
        if root in unreaped or root not in members:
            yield from members


def _session_of(pid: int) -> int:
    """Return the session of a process; 0 if the process has ended."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return 0
    fields = line[line.rindex(b")") + 2 :].split()
    return 0 if fields[0] in b"ZX" else int(fields[3])


def _kill(kill: Callable[[int, int], None], pid: int) -> None:
    try:
        kill(pid, _signal.SIGKILL)
    except OSError:
        return
