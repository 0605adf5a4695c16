"""The directory of a daemon's control groups (version 2, cgroups(7)): creates, locks, clears it.

If this process may create control groups below its own, each terminal gets a group, which tracks
the terminal's processes (`cgroup_tree`). A forked process is in the group of its parent. It stays
there until it ends, or until a system manager or the process itself moves it to another group (see
`trees`).

Layout: OWN/acpterm-PID-RANDOM/TERMINAL, where OWN is this process's control group. The second part,
the daemon's directory, is locked as long as the daemon lives. The lock belongs to an open file
(flock(2)) and lasts until all duplicates of its descriptor are closed, so it can be passed to the
next worker (`Cgroups.handover`, `Cgroups.adopt`). Processes in a directory without a lock belong to
a daemon that was killed; they are killed (`trees`). If a limit needs a controller, the daemon's
own processes move to OWN/acpterm-daemon (`controllers`).

systemd requires that a process creates groups only where they were delegated to it. For root,
permissions do not show the delegation, since root may create groups everywhere. So root's group
must have the attribute that systemd sets for delegation, or be the root of the visible hierarchy.
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
from acpterm.pty.tracking import controllers
from acpterm.pty.tracking.cgroup_tree import CgroupTree, remove_groups
from acpterm.runtime.descriptors import EXHAUSTED

# The maximum number of attempts to create a directory: another daemon may remove it before it is
# locked.
_CREATE_ATTEMPTS_MAX: Final = 20
# The name of a daemon's directory. It must not match systemd units, such as `acpterm-….scope`.
_BASE_NAME: Final = re.compile(r"acpterm-[0-9]+-[0-9a-f]+")


class Cgroups:
    """The locked directory of this daemon's control groups. `find` and `adopt` create it."""

    def __init__(self, base: str, lock: int) -> None:
        self.base = base
        self.lock = lock

    @classmethod
    def find(cls, held: Collection[str] = ()) -> "Cgroups | None":
        """Create the directory, and kill the processes in those of killed daemons.

        If a group of one of the `held` terminals exists, which outlived their daemon, its directory
        is used again. None if this process may not create groups.
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
                continue  # another daemon has removed it as stale before it was locked
            except OSError:
                break
        return None

    @classmethod
    def adopt(cls, base: str, lock: int) -> "Cgroups | None":
        """Take over the previous worker's directory and lock; None if it is gone or replaced."""
        try:
            if os.path.samestat(os.stat(base), os.fstat(lock)):
                return cls(base, lock)
        except OSError:
            pass
        os.close(lock)
        return None

    def new(self, name: str) -> "CgroupTree":
        """Create the control group of a terminal. Raises `OSError`."""
        return CgroupTree.make(self.directory(name))

    def directory(self, name: str) -> str:
        return os.path.join(self.base, name)

    @property
    def name(self) -> str:
        """The directory's name, by which `terminals_of` names the daemon."""
        return os.path.basename(self.base)

    def close(self) -> None:
        """Remove the directory if no groups are left in it, and unlock it."""
        with contextlib.suppress(OSError):
            os.rmdir(self.base)
        os.close(self.lock)


def _path_of(pid: int | str) -> str | None:
    """Return the path in `/proc/PID/cgroup`. Raises `OSError` if no descriptor is free."""
    try:
        with open(f"/proc/{pid}/cgroup") as file:
            return next((line[3:].rstrip("\n") for line in file if line.startswith("0::")), None)
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None


def terminals_of(pid: int | str) -> set[tuple[str, str]]:
    """Return the daemons' directories and terminals in whose groups a process (or `self`) is.

    There are several if the daemon itself runs in another's terminal. Raises `OSError` if no
    descriptor is free.
    """
    parts = (_path_of(pid) or "").split("/")
    return {pair for pair in itertools.pairwise(parts) if _BASE_NAME.fullmatch(pair[0])}


def _own_directory() -> str | None:
    """Return the directory OWN of the module's docstring; None if no mount shows it."""
    path = _own_path()
    return None if path is None else _directory_of(path)


def _own_path() -> str | None:
    path = _path_of("self")
    if path is not None and os.path.basename(path) == controllers.DAEMON_GROUP:
        return os.path.dirname(path)
    return path


def _directory_of(path: str) -> str | None:
    """Return the directory of a group, if a mount shows it. Raises `OSError`."""
    try:
        with open("/proc/self/mountinfo") as file:
            mounts = [line.split() for line in file if " - cgroup2 " in line]
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None
    if not mounts:
        return None
    root, mount = mounts[0][3], mounts[0][4]
    inside = os.path.relpath(path, root)
    return None if inside.startswith("..") else os.path.normpath(os.path.join(mount, inside))


def _is_delegated(directory: str) -> bool:
    """Return whether this process may create control groups in `directory`."""
    if not os.access(directory, os.W_OK) or not os.access(f"{directory}/cgroup.procs", os.W_OK):
        return False
    if os.geteuid() != 0:
        return True
    # The root of the hierarchy, or of the part that a container sees, is `/`.
    if _own_path() == "/":
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
    """Lock a directory; return the descriptor that holds the lock. Raises `OSError`."""
    lock = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
        os.stat(base)
    except OSError:
        os.close(lock)
        raise
    return lock


def stale_base_of(pid: int) -> str | None:
    """Return the killed daemon's directory in which the group of a process is.

    None if its daemon runs, or is another user's. Raises `OSError` if no descriptor is free.
    """
    parts = (_path_of(pid) or "").split("/")
    index = next((i for i, part in enumerate(parts) if _BASE_NAME.fullmatch(part)), None)
    base = None if index is None else _directory_of("/".join(parts[: index + 1]))
    if base is None:
        return None
    try:
        os.close(_lock_stale(base))
    except OSError as error:
        if error.errno in EXHAUSTED:
            raise
        return None
    return base


def clear_stale(base: str) -> bool:
    """Kill all processes in a killed daemon's control groups, and remove the groups.

    Returns False if groups remain because the processes have not ended yet, or no descriptor is
    free: then call again. A directory that is locked, gone or another user's is left alone: True.
    """
    try:
        lock = _lock_stale(base)
    except OSError as error:
        return error.errno not in EXHAUSTED
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
    """Lock a killed daemon's directory. Raises `OSError` if it runs, or is another user's."""
    if os.stat(base).st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, f"{base} belongs to another user")
    return _lock(base, fcntl.LOCK_EX)
