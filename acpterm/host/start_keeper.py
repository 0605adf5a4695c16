"""Forks the two processes of a daemon: the keeper, and its first worker, which runs `daemon.serve`.

The process that calls `start_keeper` executes the keeper, so the keeper is the daemon's main
process: the one that systemd and scripts know. Its child is the first worker.
"""

import contextlib
import os
from collections.abc import Container, Sequence

from acpterm.keeper.client import KeeperClient
from acpterm.keeper.startup import become_keeper, worker_pair


def start_keeper(worker_command: Sequence[str], handed: Container[int] = ()) -> KeeperClient:
    """Fork: this process becomes the keeper; return only in the first worker, with its client."""
    # Before any thread is started, and before the limit of open files is raised. Raises `OSError`.
    worker_end, keeper_end = worker_pair()
    worker = os.fork()
    if worker:
        worker_end.close()
        _set_close_on_exec(handed)
        become_keeper(keeper_end, worker, worker_command)
    # Linux divides CPU time by session, so the worker gets its own share.
    os.setsid()
    keeper_end.close()
    _close(handed)
    return KeeperClient(worker_end)


def _set_close_on_exec(handed: Container[int]) -> None:
    for fd in _open_descriptors():
        if fd > 2 and fd not in handed:
            with contextlib.suppress(OSError):
                os.set_inheritable(fd, False)


def _close(handed: Container[int]) -> None:
    for fd in _open_descriptors():
        if fd in handed:
            with contextlib.suppress(OSError):
                os.close(fd)


def _open_descriptors() -> list[int]:
    try:
        return [int(name) for name in os.listdir("/dev/fd")]
    except OSError:
        return []
