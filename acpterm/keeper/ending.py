"""Ending all programs, when nobody is left to use them."""

from __future__ import annotations

import os
import time

from acpterm.keeper import system

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

    from acpterm.keeper.terminal import Terminals

ENDING_MAX_S = 2.0
_ROUND_S = 0.002
_ROUND_MAX_S = 0.05
_SIGKILL = 9


def end_programs(terminals: Terminals, *, spared: set[int]) -> None:
    """SIGKILL every program, its process group and session, and every orphan of theirs.

    What a killed process leaves behind becomes a child of this process, the subreaper, and is there
    in the next round, until none is left or `ENDING_MAX_S` are over. `spared` are children to leave.
    """
    roots = {terminal.pid for terminal in terminals.by_name.values()} | terminals.by_pid.keys()
    deadline = time.monotonic() + ENDING_MAX_S
    pause = _ROUND_S
    while True:
        held = set(terminals.by_pid)
        members = set(_session_members(roots, held))
        children = {pid for pid in system.children_of_this_process() if pid not in spared}
        if not system.LINUX:
            children |= held
        for pid in held:
            _signal(os.killpg, pid)
        for pid in members | children:
            _signal(os.kill, pid)
        left = False
        for pid in children:
            try:
                reaped, _ = os.waitpid(pid, os.WNOHANG)
            except ChildProcessError:
                reaped = pid
            if reaped:
                terminals.by_pid.pop(pid, None)
            else:
                left = True
        if not left and not members:
            # What the last of them left behind is adopted by now.
            if all(pid in spared for pid in system.children_of_this_process()):
                return
        elif time.monotonic() > deadline:
            return
        time.sleep(pause)
        pause = min(2 * pause, _ROUND_MAX_S)


def _session_members(roots: set[int], held: set[int]) -> Iterator[int]:
    """Yield the living processes whose session a program led.

    The number of a session is not used again while it has a member. A process that has the number of
    a root which was reaped is the leader of somebody else's session.
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
        if root in held or root not in members:
            yield from members


def _session_of(pid: int) -> int:
    """Return the session of a process; 0 if it is gone or a zombie."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            line = file.read()
    except OSError:
        return 0
    fields = line[line.rindex(b")") + 2 :].split()
    return 0 if fields[0] in b"ZX" else int(fields[3])


def _signal(kill: object, pid: int) -> None:
    try:
        kill(pid, _SIGKILL)  # type: ignore[operator]
    except OSError:
        return
