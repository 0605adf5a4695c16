"""A daemon's two processes: the keeper, which is the main one, and its first worker."""

import os
from collections.abc import Container, Sequence
from contextlib import suppress

from acpterm.keeper.client import KeeperClient, become_keeper, worker_pair


def start_keeper(worker_command: Sequence[str], handed: Container[int] = ()) -> KeeperClient:
    """Become the first worker of a new keeper: return its connection, in a child of this process.

    This process itself becomes the keeper, and starts later workers with `worker_command`. Call it
    before there are threads, and before more open files are allowed. `handed`: descriptors that the
    keeper takes. Raises `OSError`.
    """
    ours, theirs = worker_pair()
    worker = os.fork()
    if worker:
        ours.close()
        _keep_from_programs(handed)
        become_keeper(theirs, worker, worker_command)
    # Linux shares processors out by session: the worker has a share of its own.
    os.setsid()
    theirs.close()
    _close(handed)
    return KeeperClient(ours)


def _keep_from_programs(handed: Container[int]) -> None:
    """Have no descriptor inherited but for the first three and those that are the keeper's."""
    for fd in _open_descriptors():
        if fd > 2 and fd not in handed:
            with suppress(OSError):
                os.set_inheritable(fd, False)


def _close(handed: Container[int]) -> None:
    for fd in _open_descriptors():
        if fd in handed:
            with suppress(OSError):
                os.close(fd)


def _open_descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return []
