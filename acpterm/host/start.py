"""A daemon's two processes: the keeper, which is the main one, and its first worker."""

import os
from collections.abc import Sequence
from contextlib import suppress

from acpterm.keeper.client import KeeperClient, become_keeper, worker_pair


def start_keeper(worker_command: Sequence[str]) -> KeeperClient:
    """Become the first worker of a new keeper: return its connection, in a child of this process.

    This process itself becomes the keeper, and starts later workers with `worker_command`. Call it
    before there are threads, and before more open files are allowed. Raises `OSError`.
    """
    ours, theirs = worker_pair()
    worker = os.fork()
    if worker:
        ours.close()
        _keep_from_programs()
        become_keeper(theirs, worker, worker_command)
    theirs.close()
    return KeeperClient(ours)


def _keep_from_programs() -> None:
    """Have no descriptor inherited that this process was started with, but for the first three."""
    with suppress(OSError):
        for fd in map(int, os.listdir("/dev/fd")):
            if fd > 2:
                with suppress(OSError):
                    os.set_inheritable(fd, False)
