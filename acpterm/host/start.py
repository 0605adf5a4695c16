"""A daemon's two processes: the keeper, which is the main one, and its first worker."""

import os
import socket
from collections.abc import Sequence

from acpterm.keeper import protocol
from acpterm.keeper.client import KeeperClient, keeper_command


def start_keeper(worker_command: Sequence[str]) -> KeeperClient:
    """Become the keeper's first worker: return its connection, in a child of this process.

    This process itself becomes the keeper, and starts later workers with `worker_command`. Call it
    before there are threads. Raises `OSError`.
    """
    ours, theirs = protocol.pair()
    worker = os.fork()
    if worker:
        _become_keeper(theirs.fileno(), worker, worker_command)
    theirs.close()
    return KeeperClient(socket.socket(fileno=ours.detach()))


def _become_keeper(fd: int, worker: int, worker_command: Sequence[str]) -> None:
    os.set_inheritable(fd, True)
    command = [*keeper_command(), "supervise", str(fd), str(worker), "--", *worker_command]
    os.execv(command[0], command)
