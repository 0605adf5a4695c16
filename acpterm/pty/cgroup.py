"""Trees as Linux control groups, version 2 (cgroups(7)): the exact way.

Where this process may make control groups below its own, each terminal gets one; every process
that comes from it is in it, whatever it forks, leaves or calls itself, until it ends or a manager
of the system moves it. Layout: OWN/acpterm-PID-RANDOM/TERMINAL, the folder in the middle locked
for as long as its daemon lives.

Whose hierarchy it is: systemd asks that nobody makes groups where none were delegated, so for root,
who may everywhere, the group has to be marked as delegated or to be the root of what is visible.
"""

import contextlib
import errno
import fcntl
import os
import secrets
import signal
from functools import partial

import trio

from acpterm.pty import processes
from acpterm.pty.tree import insist

# What the files of a group that was removed say: opened later, or opened before.
_GONE = (errno.ENOENT, errno.ENODEV)
# How often a folder is made that somebody else may take for stale before it is locked.
_TRIES = 20
# Processes to signal between two looks at the group.
_BATCH = 256


class Cgroups:
    """The folder that this daemon's groups are in, made by `find`; removed by `close`."""

    def __init__(self, base: str, lock: int) -> None:
        self._base = base
        self._lock = lock

    @classmethod
    def find(cls) -> "Cgroups | None":
        """Make this process's folder; None where it may not, or there is no version 2."""
        own = _own_folder()
        if own is None or not _is_ours(own):
            return None
        _remove_stale(own)
        for _ in range(_TRIES):
            base = os.path.join(own, f"acpterm-{os.getpid()}-{secrets.token_hex(4)}")
            try:
                os.mkdir(base, mode=0o755)
                return cls(base, _lock(base, fcntl.LOCK_SH))
            except (FileNotFoundError, BlockingIOError):
                continue  # somebody takes it for stale before it is locked, or has removed it
            except OSError:
                break
        return None

    def new(self, name: str) -> "CgroupTree":
        """Make the group of one terminal. Raises `OSError` when the system allows no more."""
        return CgroupTree(os.path.join(self._base, name))

    def whose(self, pid: int) -> str | None:
        """Give the name of the group that a process is in, or below; None if it is none of ours."""
        try:
            with open(f"/proc/{pid}/cgroup") as file:
                paths = [line[3:].rstrip("\n") for line in file if line.startswith("0::")]
        except OSError:
            return None
        _, found, rest = (paths[0] if paths else "").partition(f"/{os.path.basename(self._base)}/")
        return rest.partition("/")[0] if found else None

    def close(self) -> None:
        """Remove the folder, if the groups in it are gone."""
        with contextlib.suppress(OSError):
            os.rmdir(self._base)
        os.close(self._lock)


class CgroupTree:
    """One terminal's group. See `tree.Tree`."""

    def __init__(self, folder: str) -> None:
        try:
            os.mkdir(folder, 0o755)
        except FileNotFoundError:
            # Another pool of this process has removed the folder above it, as its own.
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

    def begins(self) -> None:
        """Nothing to learn."""

    def reaped(self) -> None:
        """Nothing to learn: the kernel keeps the members."""

    async def empty(self) -> bool:
        """Whether the kernel counts no process in the group or below."""
        return not self._populated()

    async def signal(self, number: int) -> None:
        """Signal each process in the group and below."""
        pids = self._pids()
        size = _BATCH
        while pids:
            await trio.lowlevel.checkpoint()
            try:
                processes.send_to_members(pids[:size], number, self._pids)
            except OSError:
                # Too many descriptors at a time, it may be.
                if size == 1:
                    raise
                size //= 2
            else:
                pids = pids[size:]

    async def kill(self) -> None:
        """Write to `cgroup.kill` (Linux 5.14), which no fork escapes; else signal each one."""
        pause = 0.005
        while not await insist(self.empty):
            if not self._kill_at_once():
                await insist(partial(self.signal, signal.SIGKILL))
            await trio.sleep(pause)
            pause = min(2 * pause, 0.1)

    async def close(self) -> None:
        """Remove the group and those that its programs made in it."""
        self._close_folder()
        with contextlib.suppress(OSError):
            os.rmdir(self._folder)
            return
        _remove_all(self._folder)

    def _populated(self) -> bool:
        try:
            with open(f"{self._folder}/cgroup.events", "rb", buffering=0) as events:
                return b"populated 0" not in events.read()
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise

    def _kill_at_once(self) -> bool:
        try:
            with open(os.path.join(self._folder, "cgroup.kill"), "wb", buffering=0) as file:
                file.write(b"1")
        except OSError:  # there is none, the group is gone, or no descriptor is left just now
            return False
        return True

    def _close_folder(self) -> None:
        if self.cgroup is not None:
            os.close(self.cgroup)
            self.cgroup = None

    def _pids(self) -> list[int]:
        found: list[int] = []
        for folder, _, _ in os.walk(self._folder, onerror=_raise_unless_gone):
            try:
                with open(f"{folder}/cgroup.procs", "rb") as procs:
                    found += map(int, procs.read().split())
            except OSError as error:
                _raise_unless_gone(error)
        # A process that another namespace hides from us is listed as 0.
        return [pid for pid in found if pid > 0]


def _raise_unless_gone(error: OSError) -> None:
    if error.errno not in _GONE and error.errno != errno.EOPNOTSUPP:  # a group of threads alone
        raise error


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


def _lock(base: str, how: int) -> int:
    """Lock a folder for as long as the descriptor is open.

    Raises `OSError`: BlockingIOError if that cannot be now, FileNotFoundError if it is gone.
    """
    lock = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        os.stat(base)
    except OSError:
        os.close(lock)
        raise
    return lock


def _remove_stale(own: str) -> None:
    """Remove what daemons left that were killed; groups that still have processes stay.

    Whose daemon lives is told by its lock: its pid may be one of another container's.
    """
    for name in os.listdir(own):
        if not name.startswith("acpterm-"):
            continue
        base = os.path.join(own, name)
        with contextlib.suppress(OSError):
            lock = _lock(base, fcntl.LOCK_EX)
            _remove_all(base)
            os.close(lock)


def _remove_all(base: str) -> None:
    """Remove a group and those below it, but for those that still have processes."""
    for folder, _, _ in os.walk(base, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(folder)
