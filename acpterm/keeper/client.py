"""The worker's side of the keeper: starting one, or finding the one that started this process.

Everything that a worker needs of this package is importable from here.
"""

import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Final, NoReturn

import trio

from acpterm.keeper import protocol
from acpterm.keeper.keeper_client import KeeperClient
from acpterm.keeper.reports import (
    UNKNOWN,
    Entry,
    ExitReport,
    Found,
    KeeperLostError,
    RestartError,
    Spawned,
    TerminalEvents,
)

__all__ = [
    "KEEPER_FD_VARIABLE",
    "UNKNOWN",
    "Entry",
    "ExitReport",
    "Found",
    "KeeperClient",
    "KeeperLostError",
    "RestartError",
    "Spawned",
    "TerminalEvents",
    "become_keeper",
    "embedded_keeper",
    "inherited_keeper",
    "keeper_command",
    "worker_pair",
]

KEEPER_FD_VARIABLE: Final = "ACPTERM_KEEPER_FD"
_END_TIMEOUT_S: Final = 4.0
_POLL_S: Final = 0.002


def keeper_command() -> list[str]:
    """Return the command that starts a keeper, without its arguments.

    Without site-packages, to be small; where ptyprocess makes its children it is needed.
    """
    main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    flags = ["-I", "-S"] if sys.platform == "linux" else ["-I"]
    return [sys.executable, *flags, main]


@asynccontextmanager
async def embedded_keeper(
    on_lost: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[KeeperClient]:
    """Start a keeper as a child; it ends with the block, and ends all programs that are left.

    It also ends, with them, when this process ends in any other way. Raises `OSError` when it
    cannot be started, and `KeeperLostError`, out of the block too: then the block is cancelled, but
    not before `on_lost` has returned.
    """
    process, sock = _start_embedded()
    client = KeeperClient(sock)
    failure: Exception | None = None

    async def serve(scope: trio.CancelScope) -> None:
        nonlocal failure
        try:
            await client.run(on_terminate=lambda: None)
        except KeeperLostError as error:
            failure = error
            if on_lost is not None:
                await on_lost()
            scope.cancel()

    try:
        await client.connect()
        await client.ready()
        async with trio.open_nursery() as nursery:
            nursery.start_soon(serve, nursery.cancel_scope)
            try:
                yield client
            except Exception as error:  # noqa: BLE001  raised below, out of the nursery's group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        client.close()
        with trio.CancelScope(shield=True):
            await _wait_ended(process)


def _start_embedded() -> tuple[subprocess.Popen[bytes], socket.socket]:
    ours, theirs = worker_pair()
    try:
        fd = theirs.fileno()
        # A session of its own: a Ctrl-C at this process's terminal is not for it.
        process = subprocess.Popen(
            [*keeper_command(), "embedded", str(fd), str(os.getpid())],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        ours.close()
        raise
    finally:
        theirs.close()
    return process, ours


async def _wait_ended(process: subprocess.Popen[bytes]) -> None:
    deadline = trio.current_time() + _END_TIMEOUT_S
    while process.poll() is None:
        if trio.current_time() > deadline:
            process.kill()
        await trio.sleep(_POLL_S)


def worker_pair() -> tuple[socket.socket, socket.socket]:
    """Make the two ends of a connection between a worker and its keeper."""
    ours, theirs = protocol.socket_pair()
    return socket.socket(fileno=ours.detach()), socket.socket(fileno=theirs.detach())


def become_keeper(sock: socket.socket, worker: int, worker_command: Sequence[str]) -> NoReturn:
    """Replace this process by the keeper of a daemon.

    `worker` is the pid of a child of this process that holds the other end of `sock`: the first
    worker. Later ones are started by `worker_command`, in this directory. Raises `OSError`.
    """
    sock.set_inheritable(True)
    arguments = ["supervise", str(sock.fileno()), str(worker), "--", *worker_command]
    command = [*keeper_command(), *arguments]
    os.execv(command[0], command)  # noqa: S606  no shell is wanted


def inherited_keeper() -> KeeperClient | None:
    """Return the connection that this worker was started with; None if it was started otherwise."""
    number = os.environ.pop(KEEPER_FD_VARIABLE, None)
    return None if number is None else KeeperClient(socket.socket(fileno=int(number)))
