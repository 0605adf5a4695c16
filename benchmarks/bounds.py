"""Bounds of a large load: limits by the kernel, and a `Watch` in this process.

A mistake in a load of hundreds of programs must not make the machine unusable. `bounded` limits the
processes and the memory of this process and its descendants, by control groups of version 1, or
checks that a scope of systemd does. `Watch` ends the load before these limits are reached.
"""

import contextlib
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

_ROOT = Path("/sys/fs/cgroup")
_INTERVAL_S = 0.5
_REMOVE_TIMEOUT_S = 10.0
_MIB = 1 << 20
_UNLIMITED = 1 << 60


@contextlib.contextmanager
def bounded(processes: int, memory_mib: int) -> Iterator[None]:
    """Limit the processes and memory (MiB) of this process and its descendants during the block.

    Raises `RuntimeError` if a limit cannot be set, unless a limit at least as low applies already.
    """
    made = []
    for controller, file, limit in (
        ("pids", "pids.max", processes),
        ("memory", "memory.limit_in_bytes", memory_mib * _MIB),
    ):
        parent = Path(f"{_ROOT}/{controller}{_own(controller)}")
        group = parent / f"acpterm-bench-{os.getpid()}"
        with contextlib.suppress(OSError):
            group.mkdir()
            (group / file).write_text(str(limit))
            (group / "cgroup.procs").write_text(str(os.getpid()))
            made.append((group, parent))
    try:
        _check(processes, memory_mib)
        yield
    finally:
        for group, parent in made:
            _remove(group, parent)


def _remove(group: Path, parent: Path) -> None:
    """Move the processes that are left in a control group to its parent, and remove the group."""
    deadline = time.monotonic() + _REMOVE_TIMEOUT_S
    while group.exists() and time.monotonic() < deadline:
        for pid in (group / "cgroup.procs").read_text().split():
            # A process that ends meanwhile cannot be moved.
            with contextlib.suppress(OSError):
                (parent / "cgroup.procs").write_text(pid)
        with contextlib.suppress(OSError):
            group.rmdir()


def _check(processes: int, memory_mib: int) -> None:
    limits = {
        "pids.max": (("pids", "pids.max"), processes),
        "memory.max": (("memory", "memory.limit_in_bytes"), memory_mib * _MIB),
    }
    for name, (first, most) in limits.items():
        controller, file = first
        paths = (f"{_ROOT}/{controller}{_own(controller)}/{file}", f"{_ROOT}{_own('')}/{name}")
        found = [_limit(path) for path in paths]
        if min(found) > most:
            raise RuntimeError(
                f"nothing limits {name} to {most}: run this as root, or in systemd-run --user "
                f"--scope -p TasksMax={processes} -p MemoryMax={memory_mib}M"
            )


def _own(controller: str) -> str:
    """Return the path of this process's control group for a controller of version 1.

    If `controller` is empty, return the path of the control group of version 2. The path begins
    with a slash; it is empty if the process is in the root group or in no group.
    """
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            return path if path != "/" else ""
    return ""


def _limit(path: str) -> int:
    with contextlib.suppress(OSError, ValueError):
        return int(Path(path).read_text())
    return _UNLIMITED


class Watch:
    """Calls `stop` with the reason if the machine has too many threads or too little free memory.

    That is more than `threads_max` threads, or less than `free_mib_min` MiB of available memory.
    During the block, a thread checks both every `_INTERVAL_S` seconds, until it has called `stop`.
    """

    def __init__(self, threads_max: int, free_mib_min: int, stop: Callable[[str], None]) -> None:
        self._threads_max = threads_max
        self._free_mib_min = free_mib_min
        self._stop = stop
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.threads = 0
        """The highest number of threads that was seen."""
        self.free_mib = _UNLIMITED
        """The smallest amount of available memory that was seen, in MiB."""

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._ended.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._ended.wait(_INTERVAL_S):
            self.threads = max(self.threads, threads())
            self.free_mib = min(self.free_mib, free_mib())
            if self.threads > self._threads_max or self.free_mib < self._free_mib_min:
                self._stop(f"{self.threads} threads, {self.free_mib} MiB available: too much")
                return


def threads() -> int:
    """Return the number of threads on this machine."""
    return int(Path("/proc/loadavg").read_text().split()[3].partition("/")[2])


def free_mib() -> int:
    """Return the available memory in MiB."""
    for line in Path("/proc/meminfo").read_text().splitlines():
        if line.startswith("MemAvailable:"):
            return int(line.split()[1]) // 1024
    return 0
