"""What daemons that were killed have left: found by their marks, and ended.

Two kinds of evidence, each of which is enough: the process is in the control groups of a daemon
that holds their lock no more; or its environment names a daemon (`marks.DAEMON`) of this pid
namespace that runs no more, and that listened where this one does or nowhere: what another place's
daemon has left is for its own successor. Only this user's processes are looked at. Never ended:
this process, its ancestors, and the terminals that a caller says are still held.
"""

import os
import signal
import time
from collections.abc import Collection, Iterator
from typing import Final

import structlog
import trio

from acpterm.pty import linux, processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking import cgroup, marks
from acpterm.pty.tracking.marks import Daemon
from acpterm.pty.tracking.slices import collect
from acpterm.pty.tracking.tree import retry_on_oserror

_POLL_S: Final = 0.05
_TIMEOUT_S: Final = 10.0

_log = structlog.get_logger("acpterm.leftovers")


async def end_leftovers(daemon: Daemon, held: Collection[str] = ()) -> int:
    """Kill what predecessors of `daemon` have left; return how many processes that were.

    `held`: names of terminals that were taken over from a daemon that is gone. Gives up after
    some seconds on what cannot be killed.
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
                processes.send(process, signal.SIGKILL)
            else:
                groups.add(base)
        groups = {base for base in groups if not cgroup.clear_stale(base)}
        await trio.sleep(_POLL_S)
    if ended:
        _log.info("ended what a daemon that was killed had left", processes=len(ended))
    return len(ended)


async def _find(daemon: Daemon, held: Collection[str]) -> list[tuple[ProcStat, str | None]]:
    """Return the processes left, each with the stale control groups that it is in, if any."""
    steps = await collect(_look(daemon, held, _ancestors()))
    return [step for step in steps if step is not None]


def _look(
    daemon: Daemon, held: Collection[str], spared: Collection[int]
) -> Iterator[tuple[ProcStat, str | None] | None]:
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
        if base is not None or _is_left(process.pid, daemon, held):
            yield process, base


def _is_left(pid: int, daemon: Daemon, held: Collection[str]) -> bool:
    found = marks.read(pid)
    if found.daemon is None or found.terminal in held:
        return False
    return found.daemon.place in (0, daemon.place) and found.daemon.is_gone()


def _ancestors() -> set[int]:
    """Return this process and those that it descends from."""
    found = {os.getpid()}
    pid = os.getppid()
    while pid > 0 and pid not in found:
        found.add(pid)
        process = processes.identity(pid)
        pid = 0 if process is None else process.ppid
    return found
