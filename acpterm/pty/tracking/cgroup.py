"""The control groups of one daemon, version 2 (cgroups(7)): the exact way to track processes.

Where this process may create control groups below its own, each terminal gets one (`cgroup_tree`).
Every process of the terminal is in it, whatever it forks, leaves or calls itself, until it ends or
is moved: by a system manager, or by itself if it may write to another group (see `trees`).
Layout: OWN/acpterm-PID-RANDOM/TERMINAL. The daemon's directory in the middle is locked as long as
the daemon lives. The lock belongs to an open file (flock(2)): it lasts until every copy of its
descriptor is closed, so it can be passed to a successor of this process (`Cgroups.handover`,
`Cgroups.adopt`). Processes in a directory without a lock were left by a daemon that was killed;
they are killed (`leftovers`).

systemd requires that no process creates groups where none were delegated to it. Root has the
permission everywhere, so for root the group must be marked as delegated, or must be the root of the
visible hierarchy.
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
from typing import Final

from acpterm.pty import processes
from acpterm.pty.tracking.cgroup_tree import CgroupTree, remove_groups
from acpterm.runtime.descriptors import EXHAUSTED

# How often a directory is created: another daemon may take it for stale before it is locked.
_CREATE_ATTEMPTS_MAX: Final = 20
# The name of a daemon's directory. systemd units are called `acpterm-…` as well.
_BASE_NAME: Final = re.compile(r"acpterm-[0-9]+-[0-9a-f]+")


class Cgroups:
    """The directory of this daemon's groups, created by `find` or adopted; removed by `close`."""

    def __init__(self, base: str, lock: int) -> None:
        self._base = base
        self._lock = lock

    @classmethod
    def find(cls, held: Collection[str] = ()) -> "Cgroups | None":
        """Create this process's directory.

        Returns None if this process may not create groups, or the system has no version 2. Also
        kills what killed daemons have left. `held` are the names of terminals that outlived such a
        daemon: the directory that contains them is taken over instead of creating one.
        """
        own = _own_directory()
        if own is None or not _is_delegated(own):
            return None
        for name in os.listdir(own):
            base = os.path.join(own, name)
            if not _BASE_NAME.fullmatch(name):
                continue
            if any(os.path.isdir(os.path.join(base, terminal)) for terminal in held):
                with contextlib.suppress(OSError):
                    return cls(base, _lock(base, fcntl.LOCK_SH))
            clear_stale(base)
        for _ in range(_CREATE_ATTEMPTS_MAX):
            base = os.path.join(own, f"acpterm-{os.getpid()}-{secrets.token_hex(4)}")
            try:
                os.mkdir(base, mode=0o755)
                return cls(base, _lock(base, fcntl.LOCK_SH))
            except (FileNotFoundError, BlockingIOError):
                continue  # another daemon has taken it for stale before it was locked
            except OSError:
                break
        return None

    @classmethod
    def adopt(cls, base: str, lock: int) -> "Cgroups | None":
        """Take over a predecessor's directory with the descriptor that locks it.

        Closes the descriptor and returns None if the directory is gone or is not the locked one.
        """
        try:
            if os.path.samestat(os.stat(base), os.fstat(lock)):
                return cls(base, lock)
        except OSError:
            pass
        os.close(lock)
        return None

    def handover(self) -> tuple[str, int]:
        """Return the directory and the descriptor of its lock, which remains open here."""
        return self._base, self._lock

    def new(self, name: str) -> "CgroupTree":
        """Create the group of one terminal. Raises `OSError` when the system allows no more."""
        return CgroupTree.make(os.path.join(self._base, name))

    def existing(self, name: str) -> "CgroupTree":
        """Return the group that a predecessor made for a terminal; an empty one if it is gone."""
        return CgroupTree(os.path.join(self._base, name))

    @property
    def name(self) -> str:
        """The directory's own name: see `terminals_of`."""
        return os.path.basename(self._base)

    def close(self) -> None:
        """Remove the directory if the groups in it are gone, and unlock it."""
        with contextlib.suppress(OSError):
            os.rmdir(self._base)
        os.close(self._lock)


def _path_of(pid: int | str) -> str | None:
    """Return a process's path in the version 2 hierarchy; None if it cannot be read.

    Raises `OSError` when no descriptor is left to read it.
    """
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            return next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None


def terminals_of(pid: int | str) -> set[tuple[str, str]]:
    """Return the terminal groups of a process, as pairs of the daemon's directory and the terminal.

    There are several if a daemon runs in a terminal of another one. Raises `OSError` when no
    descriptor is left to read them.
    """
    parts = (_path_of(pid) or "").split("/")
    return {pair for pair in itertools.pairwise(parts) if _BASE_NAME.fullmatch(pair[0])}


def _own_directory() -> str | None:
    """Return the directory of this process's group in the version 2 hierarchy."""
    path = _path_of("self")
    return None if path is None else _directory_of(path)


def _directory_of(path: str) -> str | None:
    """Return the directory of a group; None if the hierarchy is not mounted or not visible."""
    try:
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file if " - cgroup2 " in line]
    except OSError:
        return None
    if not mounts:
        return None
    root, mount = mounts[0][3], mounts[0][4]
    inside = os.path.relpath(path, root)
    return None if inside.startswith("..") else os.path.normpath(os.path.join(mount, inside))


def _is_delegated(directory: str) -> bool:
    """Return whether this process may create groups in a directory."""
    if not os.access(directory, os.W_OK) or not os.access(f"{directory}/cgroup.procs", os.W_OK):
        return False
    if os.geteuid() != 0:
        return True
    # The root of the hierarchy, or of the part that a container sees, is `/`.
    if _path_of("self") == "/":
        return True
    return any(_has_attribute(directory, name) for name in ("trusted.delegate", "user.delegate"))


def _has_attribute(directory: str, attribute: str) -> bool:
    if sys.platform != "linux":
        return False
    try:
        return os.getxattr(directory, attribute) == b"1"
    except OSError:
        return False


def _lock(base: str, how: int) -> int:
    """Lock a directory as long as the returned descriptor is open.

    Raises `OSError`: BlockingIOError if it is locked already, FileNotFoundError if it is gone.
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
    """Return the daemon directory whose groups a process is in, if no daemon has it locked."""
    parts = (_path_of(pid) or "").split("/")
    index = next((i for i, part in enumerate(parts) if _BASE_NAME.fullmatch(part)), None)
    base = None if index is None else _directory_of("/".join(parts[: index + 1]))
    if base is None:
        return None
    try:
        os.close(_lock_stale(base))
    except OSError:
        return None
    return base


def clear_stale(base: str) -> bool:
    """Kill all processes in the groups of a killed daemon; return whether nothing is left to do.

    A directory that is locked belongs to a daemon that runs, maybe in another container: it is left
    alone. Killed processes take a moment to end, and their group remains until then.
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
        remove_groups(base)
        return not os.path.exists(base)
    finally:
        os.close(lock)


def _lock_stale(base: str) -> int:
    """Lock a directory of this user that no daemon has locked. Raises `OSError`."""
    if os.stat(base).st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"{base} belongs to another user")
    return _lock(base, fcntl.LOCK_EX)
