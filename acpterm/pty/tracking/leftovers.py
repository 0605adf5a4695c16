"""Leftovers: finds and kills the processes that a daemon left behind when it was killed.

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
from collections.abc import Collection, Iterator
from contextlib import suppress
from typing import Final

import structlog
import trio

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import cgroup, marks
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.tree import collect, retry_on_oserror
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
