"""Trees as Linux control groups, version 2 (cgroups(7)): the exact way.

Where this process may make control groups below its own, each terminal gets one; every process
that comes from it is in it, whatever it forks, leaves or calls itself, until it ends or a manager
of the system moves it. Layout: OWN/acpterm-PID/TERMINAL.

Whose hierarchy it is: systemd asks that nobody makes groups where none were delegated, so for root,
who may everywhere, the group has to be marked as delegated or to be the root of what is visible.
"""

import contextlib
import os
import signal
from collections.abc import Iterator

import trio

from acpterm.pty import processes
from acpterm.pty.tree import wait_empty


class Cgroups:
    """The folder that this daemon's groups are in, made by `find`; removed by `close`."""

    def __init__(self, base: str) -> None:
        self._base = base

    @classmethod
    def find(cls) -> "Cgroups | None":
        """Make this process's folder; None where it may not, or there is no version 2."""
        own = _own_folder()
        if own is None or not _is_ours(own):
            return None
        _remove_stale(own)
        base = os.path.join(own, f"acpterm-{os.getpid()}")
        try:
            os.makedirs(base, mode=0o755, exist_ok=True)
        except OSError:
            return None
        return cls(base)

    def new(self, name: str) -> "CgroupTree":
        """Make the group of one terminal. Raises `OSError` when the system allows no more."""
        return CgroupTree(os.path.join(self._base, name))

    def close(self) -> None:
        """Remove the folder, if the groups in it are gone."""
        with contextlib.suppress(OSError):
            os.rmdir(self._base)


class CgroupTree:
    """One terminal's group. See `tree.Tree`."""

    def __init__(self, folder: str) -> None:
        # With the folder above it: another pool of this process may have removed that, as its own.
        os.makedirs(folder, 0o755)
        self._folder = folder
        try:
            self.cgroup: int | None = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        except OSError:
            os.rmdir(folder)
            raise

    @property
    def join(self) -> str | None:
        """Where a child made without clone3 joins."""
        return os.path.join(self._folder, "cgroup.procs")

    def started(self, pid: int) -> None:
        """Nothing to learn: the child is in the group. Its folder need not stay open."""
        del pid
        self._close_folder()

    def reaped(self) -> None:
        """Nothing to learn: the kernel keeps the members."""

    async def empty(self) -> bool:
        """Whether the kernel counts no process in the group or below."""
        await trio.lowlevel.checkpoint()
        return not self._populated()

    async def signal(self, number: int) -> None:
        """Signal each process in the group and below."""
        for pid in self._pids():
            await trio.lowlevel.checkpoint()
            process = processes.identity(pid)
            # Read again: whoever has the pid after the look at who it is, and is in the group.
            if process is not None and pid in set(self._pids()):
                processes.send(process, number)

    async def kill(self) -> None:
        """Write to `cgroup.kill` (Linux 5.14), which no fork escapes; else signal until empty."""
        if self._kill_at_once():
            await wait_empty(self)
        while not await self.empty():
            await self.signal(signal.SIGKILL)
            await trio.sleep(0.01)

    async def close(self) -> None:
        """Remove the group and those that its programs made in it."""
        self._close_folder()
        for folder, _, _ in os.walk(self._folder, topdown=False):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
        await trio.lowlevel.checkpoint()

    def _populated(self) -> bool:
        try:
            with open(os.path.join(self._folder, "cgroup.events"), "rb") as events:
                return b"populated 0" not in events.read()
        except FileNotFoundError:
            return False

    def _kill_at_once(self) -> bool:
        try:
            with open(os.path.join(self._folder, "cgroup.kill"), "wb", buffering=0) as file:
                file.write(b"1")
        except (FileNotFoundError, PermissionError):
            return False
        return True

    def _close_folder(self) -> None:
        if self.cgroup is not None:
            os.close(self.cgroup)
            self.cgroup = None

    def _pids(self) -> Iterator[int]:
        for folder, _, _ in os.walk(self._folder):
            with contextlib.suppress(OSError), open(f"{folder}/cgroup.procs", "rb") as procs:
                yield from (int(pid) for pid in procs.read().split())


def _own_folder() -> str | None:
    """Find the folder of this process's group in the version 2 hierarchy."""
    try:
        with open("/proc/self/cgroup") as file:
            paths = [line[3:].rstrip("\n") for line in file if line.startswith("0::")]
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file if " - cgroup2 " in line]
    except OSError:
        return None
    if not paths or not mounts:
        return None
    shown, mount = mounts[0][3], mounts[0][4]
    inside = os.path.relpath(paths[0], shown)
    return None if inside.startswith("..") else os.path.normpath(os.path.join(mount, inside))


def _is_ours(folder: str) -> bool:
    if not os.access(folder, os.W_OK) or not os.access(f"{folder}/cgroup.procs", os.W_OK):
        return False
    if os.geteuid() != 0:
        return True
    # The root of the hierarchy, or of what a container sees of it, has no cgroup.events or is `/`.
    with open("/proc/self/cgroup") as file:
        if "0::/\n" in file.read():
            return True
    return any(_marked(folder, name) for name in ("trusted.delegate", "user.delegate"))


def _marked(folder: str, attribute: str) -> bool:
    try:
        return os.getxattr(folder, attribute) == b"1"
    except OSError:
        return False


def _remove_stale(own: str) -> None:
    """Remove what daemons left that were killed; groups that still have processes stay."""
    with contextlib.suppress(OSError):
        for name in os.listdir(own):
            pid = name.removeprefix("acpterm-")
            if name != pid and pid.isdigit() and not os.path.exists(f"/proc/{pid}"):
                for folder, _, _ in os.walk(os.path.join(own, name), topdown=False):
                    with contextlib.suppress(OSError):
                        os.rmdir(folder)
