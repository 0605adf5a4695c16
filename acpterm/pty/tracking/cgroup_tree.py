"""The processes in one terminal's control group of version 2 (cgroups(7)); a part of its `tree`."""

import contextlib
import errno
import os
import signal
from functools import partial
from typing import Final

import trio

from acpterm.pty import processes
from acpterm.pty.linux import ProcStat
from acpterm.pty.tracking.tree import retry_on_oserror

# The errors if a group was removed: on opening one of its files, and on reading an open file.
_GONE: Final = (errno.ENOENT, errno.ENODEV)
# The number of processes that are signalled after each read of the group's members.
_SIGNAL_BATCH_SIZE: Final = 256
_FIRST_KILL_POLL_S: Final = 0.005
_LAST_KILL_POLL_S: Final = 0.1


class CgroupTree:
    """The processes in one terminal's control group."""

    def __init__(self, directory: str, cgroup: int | None = None) -> None:
        self._directory = directory
        self.cgroup = cgroup

    @classmethod
    def make(cls, directory: str) -> "CgroupTree":
        """Create the control group. Raises `OSError`."""
        try:
            os.mkdir(directory, 0o755)
        except FileNotFoundError:
            # Another `Cgroups` of this process has removed the parent directory by `close`.
            os.makedirs(directory, 0o755)
        try:
            return cls(directory, os.open(directory, os.O_RDONLY | os.O_DIRECTORY))
        except OSError:
            os.rmdir(directory)
            raise

    @property
    def join(self) -> str | None:
        """The file to which a process writes `0` to join the group."""
        return os.path.join(self._directory, "cgroup.procs")

    def started(self) -> None:
        self._close_directory()

    def is_empty(self) -> bool:
        """Return whether no process is in the group. Raises `OSError`."""
        try:
            with open(f"{self._directory}/cgroup.events", "rb", buffering=0) as events:
                return b"populated 0" in events.read()
        except OSError as error:
            if error.errno in _GONE:
                return True
            raise

    async def signal(self, number: int) -> None:
        """Send a signal to each process in the group and its subgroups. Raises `OSError`."""
        pids = self.pids()
        size = _SIGNAL_BATCH_SIZE
        while pids:
            await trio.lowlevel.checkpoint()
            try:
                processes.send_to_members(pids[:size], number, self.pids)
            except OSError:
                # The batch may need more descriptors than are left.
                if size == 1:
                    raise
                size //= 2
            else:
                pids = pids[size:]

    async def kill(self) -> None:
        """Kill the processes in rounds, until the group is empty."""
        pause = _FIRST_KILL_POLL_S
        while not await retry_on_oserror(self._is_empty_now):
            if not self.kill_at_once():
                await retry_on_oserror(partial(self.signal, signal.SIGKILL))
            await trio.sleep(pause)
            pause = min(2 * pause, _LAST_KILL_POLL_S)

    async def close(self) -> None:
        """Remove the group, and the subgroups that its processes have created."""
        self._close_directory()
        with contextlib.suppress(OSError):
            os.rmdir(self._directory)
            return
        remove_groups(self._directory)

    def kill_at_once(self) -> bool:
        """Kill all by `cgroup.kill`, which also reaches forks; return whether it worked."""
        try:
            with open(os.path.join(self._directory, "cgroup.kill"), "wb", buffering=0) as file:
                file.write(b"1")
        except OSError:  # no such file in this kernel or group, or no descriptor is left
            return False
        return True

    def pids(self) -> list[int]:
        """Return the pids in the group and its subgroups. Raises `OSError`."""
        found: list[int] = []
        for directory, _, _ in os.walk(self._directory, onerror=_raise_unless_gone):
            try:
                with open(f"{directory}/cgroup.procs", "rb") as procs:
                    found += map(int, procs.read().split())
            except OSError as error:
                _raise_unless_gone(error)
        # A process of a pid namespace that is not visible here is listed as 0.
        return [pid for pid in found if pid > 0]

    async def members(self) -> list[ProcStat]:
        found = map(processes.identity, self.pids())
        return [process for process in found if process and not process.zombie]

    async def _is_empty_now(self) -> bool:
        await trio.lowlevel.checkpoint()
        return self.is_empty()

    def _close_directory(self) -> None:
        if self.cgroup is not None:
            os.close(self.cgroup)
            self.cgroup = None


def remove_groups(directory: str) -> None:
    """Remove a control group and its subgroups, except those with processes."""
    for path, _, _ in os.walk(directory, topdown=False):
        with contextlib.suppress(OSError):
            os.rmdir(path)


def _raise_unless_gone(error: OSError) -> None:
    if error.errno not in _GONE and error.errno != errno.EOPNOTSUPP:  # a group of threads only
        raise error
