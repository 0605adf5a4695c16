"""Trees as Linux control groups, version 2 (cgroups(7)): the exact way.

Where this process may make control groups below its own, each terminal gets one; every process
that comes from it is in it, whatever it forks, leaves or calls itself, until it ends or is moved:
by a manager of the system, or by itself where it may write to another group (`combined`). Layout:
OWN/acpterm-PID-RANDOM/TERMINAL, the directory in the middle locked for as long as its daemon lives.
The lock is of an open file (flock(2)): it lasts until each copy of its descriptor is closed, so it
can be handed to a successor of this process (`Cgroups.handover`, `Cgroups.adopt`). Processes in a
directory without a lock were left by a daemon that was killed: they are killed (`leftovers`).

Whose hierarchy it is: systemd asks that nobody makes groups where none were delegated, so for root,
who may everywhere, the group has to be marked as delegated or to be the root of what is visible.
"""

import contextlib
import errno
import fcntl
import itertools
import os
import re
import secrets
import signal
import sys
from collections.abc import Collection
from functools import partial

import trio

from acpterm.pty import processes
from acpterm.pty.tracking.tree import retry_on_oserror
from acpterm.runtime.descriptors import EXHAUSTED

# What the files of a group that was removed say: opened later, or opened before.
_GONE = (errno.ENOENT, errno.ENODEV)
# How often a directory is made that another daemon may take for stale before it is locked.
_TRIES = 20
# The name of a daemon's directory. Units of systemd are called `acpterm-…`, too.
_BASE = re.compile(r"acpterm-[0-9]+-[0-9a-f]+")
# Processes to signal between two looks at the group.
_BATCH = 256


class Cgroups:
    """The directory of this daemon's groups, made by `find` or adopted; removed by `close`."""

    def __init__(self, base: str, lock: int) -> None:
        self._base = base
        self._lock = lock

    @classmethod
    def find(cls, held: Collection[str] = ()) -> "Cgroups | None":
        """Make this process's directory; None where it may not, or there is no version 2.

        What killed daemons have left is killed. `held`: names of terminals that outlived one; the
        directory that they are in is taken over instead.
        """
        own = _own_directory()
        if own is None or not _is_ours(own):
            return None
        for name in os.listdir(own):
            base = os.path.join(own, name)
            if not _BASE.fullmatch(name):
                continue
            if any(os.path.isdir(os.path.join(base, terminal)) for terminal in held):
                with contextlib.suppress(OSError):
                    return cls(base, _lock(base, fcntl.LOCK_SH))
            clear_stale(base)
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

    @classmethod
    def adopt(cls, base: str, lock: int) -> "Cgroups | None":
        """Take over a predecessor's directory with the descriptor that locks it.

        None, and the descriptor is closed, if the directory is gone or is not what it locks.
        """
        try:
            if os.path.samestat(os.stat(base), os.fstat(lock)):
                return cls(base, lock)
        except OSError:
            pass
        os.close(lock)
        return None

    def handover(self) -> tuple[str, int]:
        """Return the directory and the descriptor of its lock, which stays ours."""
        return self._base, self._lock

    def new(self, name: str) -> "CgroupTree":
        """Make the group of one terminal. Raises `OSError` when the system allows no more."""
        return CgroupTree.make(os.path.join(self._base, name))

    def existing(self, name: str) -> "CgroupTree":
        """Return the group of a terminal that a predecessor made; an empty one if it is gone."""
        return CgroupTree(os.path.join(self._base, name))

    @property
    def name(self) -> str:
        """The directory's own name: see `terminals_of`."""
        return os.path.basename(self._base)

    def close(self) -> None:
        """Remove the directory, if the groups in it are gone."""
        with contextlib.suppress(OSError):
            os.rmdir(self._base)
        os.close(self._lock)


class CgroupTree:
    """One terminal's group. See `tree.Tree`."""

    def __init__(self, directory: str, cgroup: int | None = None) -> None:
        self._directory = directory
        self.cgroup = cgroup

    @classmethod
    def make(cls, directory: str) -> "CgroupTree":
        """Make the group. Raises `OSError`."""
        try:
            os.mkdir(directory, 0o755)
        except FileNotFoundError:
            # Another pool of this process has removed the directory above it, as its own.
            os.makedirs(directory, 0o755)
        try:
            return cls(directory, os.open(directory, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            os.rmdir(directory)
            raise

    @property
    def join(self) -> str | None:
        """Where a child made without clone3 joins."""
        return os.path.join(self._directory, "cgroup.procs")

    def started(self, pid: int, started: float | None = None) -> None:
        """Close the directory: the child is in the group, and the kernel keeps the members."""
        del pid, started
        self._close_directory()

    async def empty(self) -> bool:
        """Return whether the kernel counts no process in the group or below."""
        await trio.lowlevel.checkpoint()
        return not self._populated()

    async def signal(self, number: int) -> None:
        """Signal each process in the group and below."""
        pids = self.pids()
        size = _BATCH
        while pids:
            await trio.lowlevel.checkpoint()
            try:
                processes.send_to_members(pids[:size], number, self.pids)
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
        while not await retry_on_oserror(self.empty):
            if not self.kill_at_once():
                await retry_on_oserror(partial(self.signal, signal.SIGKILL))
            await trio.sleep(pause)
            pause = min(2 * pause, 0.1)

    async def close(self) -> None:
        """Remove the group and those that its programs made in it."""
        self._close_directory()
        with contextlib.suppress(OSError):
            os.rmdir(self._directory)
            return
        _remove_all(self._directory)

    def _populated(self) -> bool:
        try:
            with open(f"{self._directory}/cgroup.events", "rb", buffering=0) as events:
                return b"populated 0" not in events.read()
        except OSError as error:
            if error.errno in _GONE:
                return False
            raise

    def kill_at_once(self) -> bool:
        """Kill all by one write, which no fork escapes; return whether the kernel did it."""
        try:
            with open(os.path.join(self._directory, "cgroup.kill"), "wb", buffering=0) as file:
                file.write(b"1")
        except OSError:  # there is none, the group is gone, or no descriptor is left just now
            return False
        return True

    def _close_directory(self) -> None:
        if self.cgroup is not None:
            os.close(self.cgroup)
            self.cgroup = None

    def pids(self) -> list[int]:
        """Return the processes in the group and below. Raises `OSError`."""
        found: list[int] = []
        for directory, _, _ in os.walk(self._directory, onerror=_raise_unless_gone):
            try:
                with open(f"{directory}/cgroup.procs", "rb") as procs:
                    found += map(int, procs.read().split())
            except OSError as error:
                _raise_unless_gone(error)
        # A process that another namespace hides from us is listed as 0.
        return [pid for pid in found if pid > 0]


def _raise_unless_gone(error: OSError) -> None:
    if error.errno not in _GONE and error.errno != errno.EOPNOTSUPP:  # a group of threads alone
        raise error


def _path_of(pid: int | str) -> str | None:
    """Return a process's path in the version 2 hierarchy; None if it may not be seen.

    Raises `OSError` when no descriptor is left to look.
    """
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            return next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None


def terminals_of(pid: int | str) -> set[tuple[str, str]]:
    """Return the groups of terminals that a process is in: directory of the daemon, terminal.

    There is more than one where a daemon runs in a terminal of another. Raises `OSError` when no
    descriptor is left to look.
    """
    parts = (_path_of(pid) or "").split("/")
    return {pair for pair in itertools.pairwise(parts) if _BASE.fullmatch(pair[0])}


def _own_directory() -> str | None:
    """Find the directory of this process's group in the version 2 hierarchy."""
    path = _path_of("self")
    return None if path is None else _directory_of(path)


def _directory_of(path: str) -> str | None:
    try:
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file if " - cgroup2 " in line]
    except OSError:
        return None
    if not mounts:
        return None
    shown, mount = mounts[0][3], mounts[0][4]
    inside = os.path.relpath(path, shown)
    return None if inside.startswith("..") else os.path.normpath(os.path.join(mount, inside))


def _is_ours(directory: str) -> bool:
    if not os.access(directory, os.W_OK) or not os.access(f"{directory}/cgroup.procs", os.W_OK):
        return False
    if os.geteuid() != 0:
        return True
    # The root of the hierarchy, or of what a container sees of it, has no cgroup.events or is `/`.
    if _path_of("self") == "/":
        return True
    return any(_marked(directory, name) for name in ("trusted.delegate", "user.delegate"))


def _marked(directory: str, attribute: str) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return os.getxattr(directory, attribute) == b"1"
    except OSError:
        return False


def _lock(base: str, how: int) -> int:
    """Lock a directory for as long as the descriptor is open.

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


def stale_base_of(pid: int) -> str | None:
    """Return the directory of a daemon's groups that a process is in, if no daemon holds it."""
    parts = (_path_of(pid) or "").split("/")
    at = next((i for i, part in enumerate(parts) if _BASE.fullmatch(part)), None)
    base = None if at is None else _directory_of("/".join(parts[: at + 1]))
    if base is None:
        return None
    try:
        os.close(_lock_stale(base))
    except OSError:
        return None
    return base


def clear_stale(base: str) -> bool:
    """Kill what is in the groups of a daemon that was killed; return whether nothing is left to do.

    Those of a daemon that lives, which its lock says, are left alone: its pid may be another
    container's. Killed processes take a moment to go, and their group stays for so long.
    """
    try:
        lock = _lock_stale(base)
    except OSError:
        return True
    try:
        tree = CgroupTree(base)
        if not tree.kill_at_once():
            with contextlib.suppress(OSError):
                processes.send_to_members(tree.pids(), signal.SIGKILL, tree.pids)
        _remove_all(base)
        return not os.path.exists(base)
    finally:
        os.close(lock)


def _lock_stale(base: str) -> int:
    """Lock a directory of ours that no daemon holds. Raises `OSError`."""
    if os.stat(base).st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"{base} belongs to another user")
    return _lock(base, fcntl.LOCK_EX)


def _remove_all(base: str) -> None:
    """Remove a group and those below it, but for those that still have processes."""
    for directory, _, _ in os.walk(base, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(directory)
