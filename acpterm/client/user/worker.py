"""Reads the status of the daemon, and replaces its worker: `acpterm status` and `restart`.

A daemon is two processes: the keeper, which owns the programs and the listening sockets, and the
worker, which responds to requests. While there is no worker, new connections wait in the listening
sockets' queues, and the keeper writes why there is none, and what to do about it, to the lock file
beside the agents' socket.
"""

import os
import signal
import time
from typing import Final, NamedTuple

import msgspec

from acpterm.acp.base import Wire
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import NoParams, StatusResponse
from acpterm.client.daemon import DaemonError, NoAnswerError, NotRunningError, read_lock
from acpterm.client.errors import LostError
from acpterm.client.user.blocking_client import BlockingClient, open_blocking_client
from acpterm.client.user.blocking_connection import DeadlineError
from acpterm.config import Settings, agent_socket
from acpterm.jsonrpc import METHOD_NOT_FOUND, RpcError

# A running worker responds to `initialize` at once.
ANSWER_TIMEOUT_S: Final = 3.0
# A new worker has ten seconds to be ready, and the keeper pauses between attempts.
REPLACE_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.05


class NoWorker(Wire):
    """The status of a daemon without a worker. `message` is the keeper's explanation."""

    keeper_pid: int | None
    worker_pid: int | None = None
    message: str | None = None


class Worker(NamedTuple):
    """The version and the process id of a worker that responds."""

    version: str
    pid: int


class Restarted(NamedTuple):
    """The result of replacing a worker. `old` is None if the old worker did not respond.

    `takeovers` counts the take-overs since the daemon started.
    """

    old: Worker | None
    new: Worker
    keeper_pid: int | None
    takeovers: int
    running: int
    """Number of terminals whose programs continue to run."""


def status(
    settings: Settings, config: str | None = None, *, start: bool = False
) -> StatusResponse | NoWorker | None:
    """Return the daemon's status; None if no daemon runs. Raises `DaemonError`, `RpcError`.

    With `start`, start a daemon if none runs. It reads the settings file `config`, if given.
    """
    try:
        with open_blocking_client(
            settings, config, start=start, answer_timeout_s=ANSWER_TIMEOUT_S
        ) as client:
            return _status(client)
    except NoAnswerError:
        lock = read_lock(settings)
        return NoWorker(keeper_pid=lock.pid, message=lock.message)
    except NotRunningError:
        return None


def restart(settings: Settings) -> Restarted:
    """Replace the worker by one of the installed version, and wait until the new worker responds.

    If the old worker does not respond, the keeper is signalled to start a worker. Raises
    `DaemonError` or `RpcError` with the reason if there is no new worker; the old worker, if there
    is one, then continues.
    """
    waits = msgspec.structs.replace(settings, resume_timeout=REPLACE_TIMEOUT_S)
    try:
        with open_blocking_client(waits, start=False, answer_timeout_s=ANSWER_TIMEOUT_S) as client:
            return _replace(client)
    except NoAnswerError:
        return _start(waits)


def _replace(client: BlockingClient) -> Restarted:
    old = _status(client)
    try:
        client.call("restart", NoParams(), Empty)
    except LostError:
        # The connection ends when the worker is replaced.
        pass
    except RpcError as error:
        if error.code != METHOD_NOT_FOUND:
            raise
        raise DaemonError(
            f"{client.name} is of version {old.version}, which cannot be replaced while "
            "it runs: acpterm shutdown ends it, and its terminals"
        ) from error
    client.deadline = time.monotonic() + REPLACE_TIMEOUT_S
    try:
        while (new := _status(client)).takeovers <= old.takeovers:
            # This response came from the old worker. No event reports its replacement, so poll.
            time.sleep(_POLL_S)
    except DeadlineError as error:
        raise DaemonError(
            f"the worker of {client.name} was not replaced within {REPLACE_TIMEOUT_S:g} s: it "
            "continues; see the daemon's log"
        ) from error
    return _restarted(_worker(old), new)


def _start(settings: Settings) -> Restarted:
    """Signal the keeper to start a worker, and wait until the new worker responds.

    Raises `DaemonError` with the reason if that fails.
    """
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
    try:
        with open_blocking_client(
            settings, start=False, answer_timeout_s=REPLACE_TIMEOUT_S
        ) as client:
            return _restarted(None, _status(client))
    except NoAnswerError as error:
        message = read_lock(settings).message or "see the daemon's log"
        raise DaemonError(
            f"no worker of the daemon at {path} answers, though its keeper (pid {pid}) was "
            f"signalled to start one: {message}"
        ) from error


def _status(client: BlockingClient) -> StatusResponse:
    return client.request_no_params("status", StatusResponse)


def _worker(status: StatusResponse) -> Worker:
    return Worker(status.version, status.worker_pid or status.pid)


def _restarted(old: Worker | None, new: StatusResponse) -> Restarted:
    return Restarted(old, _worker(new), new.keeper_pid, new.takeovers, new.running)
