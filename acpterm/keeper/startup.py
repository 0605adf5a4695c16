"""Start a keeper, become one, or connect to the keeper that started this process.

Workers, and processes that start a worker, use this module. The keeper process itself begins in
`process.main`.
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
from acpterm.keeper.client import KeeperClient
from acpterm.keeper.protocol import KEEPER_FD_VARIABLE
from acpterm.keeper.reports import KeeperLostError

_END_TIMEOUT_S: Final = 4.0
_POLL_S: Final = 0.002


def keeper_command() -> list[str]:
    """Return the command that starts a keeper, without its arguments."""
    # Without site-packages it stays small. Other systems need ptyprocess, which spawns there.
    main = os.path.join(os.path.dirname(os.path.abspath(__file__)), "__main__.py")
    flags = ["-I", "-S"] if sys.platform == "linux" else ["-I"]
    return [sys.executable, *flags, main]


@asynccontextmanager
async def embedded_keeper(
    on_lost: Callable[[], Awaitable[None]] | None = None,
) -> AsyncIterator[KeeperClient]:
    """Start a keeper as a child process; yield a client that is connected to it.

    When this process ends, in any way, the keeper kills all programs that are left. If the keeper
    dies, `on_lost` is awaited, the block is cancelled, and `KeeperLostError` is raised; `OSError`
    if it cannot be started.
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
            except Exception as error:  # noqa: BLE001  raised below, outside the exception group
                failure = error
            nursery.cancel_scope.cancel()
        if failure is not None:
            raise failure
    finally:
        client.close()
        with trio.CancelScope(shield=True):
            await _wait_ended(process)


def _start_embedded() -> tuple[subprocess.Popen[bytes], socket.socket]:
    worker_end, keeper_end = worker_pair()
    try:
        fd = keeper_end.fileno()
        # In its own session, the keeper does not get the SIGINT of a Ctrl-C at the user's terminal.
        process = subprocess.Popen(
            [*keeper_command(), "embedded", str(fd), str(os.getpid())],
            pass_fds=(fd,),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
    except BaseException:
        worker_end.close()
        raise
    finally:
        keeper_end.close()
    return process, worker_end


async def _wait_ended(process: subprocess.Popen[bytes]) -> None:
    deadline = trio.current_time() + _END_TIMEOUT_S
    while process.poll() is None:
        if trio.current_time() > deadline:
            process.kill()
        await trio.sleep(_POLL_S)


def worker_pair() -> tuple[socket.socket, socket.socket]:
    """Return the worker's and the keeper's end of a socket."""
    worker_end, keeper_end = protocol.socket_pair()
    return socket.socket(fileno=worker_end.detach()), socket.socket(fileno=keeper_end.detach())


def become_keeper(sock: socket.socket, worker: int, worker_command: Sequence[str]) -> NoReturn:
    """Replace this process by a daemon's keeper, with exec. Raises `OSError`.

    `sock` is the keeper's end of its socket to the first worker, a child of this process. Later
    workers are started with `worker_command`, in the current directory.
    """
    sock.set_inheritable(True)
    arguments = ["supervise", str(sock.fileno()), str(worker), "--", *worker_command]
    command = [*keeper_command(), *arguments]
    os.execv(command[0], command)  # noqa: S606  no shell is involved on purpose


def inherited_keeper() -> KeeperClient | None:
    """Return a client for the keeper that started this process, if one did."""
    number = os.environ.pop(KEEPER_FD_VARIABLE, None)
    return None if number is None else KeeperClient(socket.socket(fileno=int(number)))
