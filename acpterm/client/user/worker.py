"""The daemon's worker, as its user sees it: how it is, and its replacement.

A daemon is two processes: the keeper, which has the programs and listens, and the worker, which
answers. While there is no worker, connections wait; why there is none, and what to do, the keeper
writes into the lock file beside the agents' socket.
"""

import os
import signal
from typing import Final, NamedTuple

import msgspec
import trio

from acpterm.acp.base import Wire
from acpterm.acp.user_api import NoParams, StatusResponse
from acpterm.client.daemon import DaemonError, read_lock
from acpterm.client.endpoint import LostError
from acpterm.client.host_connection import NoAnswerError
from acpterm.client.user.client import NotRunningError, UserClient, open_user_client
from acpterm.config import Settings, agent_socket
from acpterm.jsonrpc import METHOD_NOT_FOUND, RpcError

# A worker that is there answers at once.
ANSWER_TIMEOUT_S: Final = 3.0
# A new one has ten seconds to be ready, and the keeper pauses between attempts.
REPLACE_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.05


class NoWorker(Wire):
    """A daemon that has no worker. `message` is the keeper's."""

    keeper_pid: int | None
    worker_pid: int | None = None
    message: str | None = None


class Worker(NamedTuple):
    """A worker that answers."""

    version: str
    pid: int


class Restarted(NamedTuple):
    """A worker that was replaced. `old` is None if it did not answer."""

    old: Worker | None
    new: Worker
    keeper_pid: int | None
    takeovers: int
    running: int
    """Terminals whose programs run on."""


async def status(settings: Settings) -> StatusResponse | NoWorker | None:
    """Ask how the daemon is; None if none runs. Raises `DaemonError`, `RpcError`, in a group."""
    found: StatusResponse | NoWorker | None = None
    try:
        async with open_user_client(settings, start=False, patience=ANSWER_TIMEOUT_S) as client:
            found = await _status(client)
    except* NoAnswerError:
        lock = read_lock(settings)
        found = NoWorker(keeper_pid=lock.pid, message=lock.message)
    except* NotRunningError:
        pass
    return found


async def restart(settings: Settings) -> Restarted:
    """Replace the worker by one of the version that is installed, and wait until it answers.

    A worker that does not answer is replaced by the keeper. Raises `DaemonError` and `RpcError`, in
    a group, with the reason: then the old worker goes on, if there is one.
    """
    waits = msgspec.structs.replace(settings, resume_timeout=REPLACE_TIMEOUT_S)
    done: Restarted | None = None
    try:
        async with open_user_client(waits, start=False, patience=ANSWER_TIMEOUT_S) as client:
            done = await _replace(client)
    except* NoAnswerError:
        pass
    return done or await _start(waits)


async def _replace(client: UserClient) -> Restarted:
    old = await _status(client)
    try:
        await client.endpoint.request("_acpterm/restart", NoParams())
    except LostError:
        pass  # so it ends when the worker is replaced
    except RpcError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        raise DaemonError(
            f"{client.endpoint.name} is of version {old.version}, which cannot be replaced while "
            "it runs: acpterm shutdown ends it, and its terminals"
        ) from error
    with trio.move_on_after(REPLACE_TIMEOUT_S):
        while (new := await _status(client)).takeovers <= old.takeovers:  # noqa: ASYNC110  see below
            # Nobody tells when it is replaced if the old one has answered.
            await trio.sleep(_POLL_S)
        return _restarted(_worker(old), new)
    raise DaemonError(
        f"the worker of {client.endpoint.name} was not replaced within {REPLACE_TIMEOUT_S:g} s: it "
        "goes on; see the daemon's log"
    )


async def _start(settings: Settings) -> Restarted:
    """Signal the keeper to start a worker, and wait for it."""
    path = agent_socket(settings)
    pid = read_lock(settings).pid
    if pid is None:
        raise DaemonError(
            f"no worker of the daemon at {path} answers, and {path}.lock does not say which "
            "process keeps its terminals: end that by its pid"
        )
    try:
        os.kill(pid, signal.SIGUSR1)
    except OSError as error:
        raise DaemonError(
            f"no worker of the daemon at {path} answers, and its keeper (pid {pid}) cannot be "
            f"signalled: {error.strerror}"
        ) from error
    found: StatusResponse | None = None
    try:
        async with open_user_client(settings, start=False, patience=REPLACE_TIMEOUT_S) as client:
            found = await _status(client)
    except* NoAnswerError:
        pass
    if found is None:
        message = read_lock(settings).message or "see the daemon's log"
        raise DaemonError(
            f"no worker of the daemon at {path} answers, though its keeper (pid {pid}) was told to "
            f"start one: {message}"
        )
    return _restarted(None, found)


async def _status(client: UserClient) -> StatusResponse:
    return await client.request_no_params("status", StatusResponse)


def _worker(status: StatusResponse) -> Worker:
    return Worker(status.version, status.worker_pid or status.pid)


def _restarted(old: Worker | None, new: StatusResponse) -> Restarted:
    return Restarted(old, _worker(new), new.keeper_pid, new.takeovers, new.running)
