"""The memory and threads of the processes of a load, by kind of process.

The processes of the load have a marker in their environment, or descend from such a process. The
descendants are searched too because the daemon runs clients such as ssh with another environment.
"""

import os
import re
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

import psutil

_MARKER = "SCALE_BENCHMARK"
# Processes of one kind whose memory is read: that takes milliseconds each.
_SAMPLES = 25


def mark() -> None:
    """Set the marker in the environment of this process, which its later children inherit."""
    os.environ[_MARKER] = str(os.getpid())


class Kind(NamedTuple):
    """The processes of a kind: their number, their threads in total, and the mean memory of one.

    `pss_mib` counts shared pages in proportion, `rss_mib` completely.
    """

    count: int
    threads: int
    pss_mib: float
    rss_mib: float


def found() -> list[psutil.Process]:
    """Return the marked processes and the children of this process, with all descendants."""
    marker = f"{_MARKER}={os.getpid()}".encode()
    children: dict[int, list[int]] = defaultdict(list)
    waiting = []
    for process in psutil.process_iter():
        try:
            children[process.ppid()].append(process.pid)
            if marker in Path(f"/proc/{process.pid}/environ").read_bytes().split(b"\0"):
                waiting.append(process.pid)
        except (psutil.Error, OSError):
            continue
    waiting += children[os.getpid()]
    pids: set[int] = set()
    while waiting:
        pid = waiting.pop()
        if pid not in pids:
            pids.add(pid)
            waiting += children[pid]
    processes = []
    for pid in pids - {os.getpid()}:
        try:
            processes.append(psutil.Process(pid))
        except psutil.Error:
            continue
    return processes


def by_kind(daemon: dict[int, str], more: list[psutil.Process]) -> dict[str, Kind]:
    """Return the number, threads and memory of the `found` processes and of `more`, by kind.

    `daemon` has the kinds of the daemon's processes, by pid. The kind of any other process is the
    name of its program.
    """
    kinds: dict[str, list[psutil.Process]] = defaultdict(list)
    for process in found() + more:
        try:
            kinds[daemon.get(process.pid) or _name(process)].append(process)
        except psutil.Error:
            continue
    return {name: _use(processes) for name, processes in sorted(kinds.items())}


def _name(process: psutil.Process) -> str:
    name: str = process.name()
    return "ssh (connection)" if name == "ssh" and "-M" in process.cmdline() else name


def _use(processes: list[psutil.Process]) -> Kind:
    pss, rss, number = [], [], 0
    for at, process in enumerate(processes):
        try:
            number += process.num_threads()
            if at % max(1, len(processes) // _SAMPLES) == 0:
                sizes = memory_mib(process.pid)
                pss.append(sizes["Pss"])
                rss.append(sizes["Rss"])
        except (psutil.Error, OSError, KeyError):
            continue
    count = len(pss) or 1
    return Kind(len(processes), number, sum(pss) / count, sum(rss) / count)


def memory_mib(pid: int) -> dict[str, float]:
    """Return the sizes in `/proc/PID/smaps_rollup`, such as `Pss` and `Rss`, in MiB."""
    rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
    return {
        name: float(size) / 1024
        for name, size in re.findall(r"^(\w+): +(\d+) kB", rollup, re.MULTILINE)
    }


def descriptors(pid: int) -> int:
    """Return how many descriptors a process has open."""
    return len(os.listdir(f"/proc/{pid}/fd"))
