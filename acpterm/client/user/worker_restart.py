"""Replaces the daemon's worker by one of the installed version, for `acpterm restart`.

The programs of terminals continue to run, since the keeper owns them.
"""

import signal
import time
from typing import Final, NamedTuple

import msgspec

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import NoParams, StatusResponse
from acpterm.client.daemon import DaemonError, NoAnswerError, read_lock, signal_keeper
from acpterm.client.errors import LostError
from acpterm.client.user.blocking_client import BlockingClient, open_blocking_client
from acpterm.client.user.blocking_connection import DeadlineError
from acpterm.client.user.daemon_status import ANSWER_TIMEOUT_S, worker_status
from acpterm.config import Settings, agent_socket
from acpterm.jsonrpc import METHOD_NOT_FOUND, RpcError

# Seconds to wait for the new worker. The keeper gives a worker ten seconds to be ready, and pauses
# between attempts to start one.
REPLACE_TIMEOUT_S: Final = 20.0
_POLL_S: Final = 0.05


class Worker(NamedTuple):
    """The version and the process id of a worker that responds."""

    version: str
    pid: int


class RestartResult(NamedTuple):
    """The result of replacing the worker `old` by the worker `new`.

    `old` is None if the old worker did not respond. `keeper_pid` is the keeper's process id.
    `takeovers` is the number of take-overs since the daemon started.
    """

    old: Worker | None
    new: Worker
    keeper_pid: int | None
    takeovers: int
    running: int
    """Number of terminals whose programs continue to run."""


def restart_worker(settings: Settings) -> RestartResult:
    """Replace the worker by one of the installed version, and wait until the new worker responds.

    If the old worker does not respond, signal the keeper to start a worker. Raises `DaemonError` or
    `RpcError`, with the reason as its message, if the worker could not be replaced; the old worker,
    if there is one, then continues.
    """
    waits = msgspec.structs.replace(settings, resume_timeout=REPLACE_TIMEOUT_S)
    try:
        with open_blocking_client(waits, start=False, answer_timeout_s=ANSWER_TIMEOUT_S) as client:
            return _replace(client)
    except NoAnswerError:
        return _start(waits)


def _replace(client: BlockingClient) -> RestartResult:
    old = worker_status(client)
    try:
        client.call("restart", NoParams(), Empty)
    except LostError:
        # Expected: the connection ends when the worker is replaced.
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
        while (new := worker_status(client)).takeovers <= old.takeovers:
            # This response came from the old worker. No event reports its replacement, so poll.
            time.sleep(_POLL_S)
    except DeadlineError as error:
        raise DaemonError(
            f"the worker of {client.name} was not replaced within {REPLACE_TIMEOUT_S:g} s: it "
            "continues; see the daemon's log"
        ) from error
    return _restarted(_worker(old), new)


def _start(settings: Settings) -> RestartResult:
    """Signal the keeper to start a worker, and wait until the new worker responds.

    Raises `DaemonError` if the keeper cannot be signalled, or if no worker responds within
    `REPLACE_TIMEOUT_S`; the message says why.
    """
    path = agent_socket(settings)
    pid = signal_keeper(settings, signal.SIGUSR1)
    try:
        with open_blocking_client(
            settings, start=False, answer_timeout_s=REPLACE_TIMEOUT_S
        ) as client:
            return _restarted(None, worker_status(client))
    except NoAnswerError as error:
        message = read_lock(settings).message or "see the daemon's log"
        raise DaemonError(
            f"no worker of the daemon at {path} answers, though its keeper (pid {pid}) was "
            f"signalled to start one: {message}"
        ) from error


def _worker(status: StatusResponse) -> Worker:
    return Worker(status.version, status.worker_pid or status.pid)


def _restarted(old: Worker | None, new: StatusResponse) -> RestartResult:
    return RestartResult(old, _worker(new), new.keeper_pid, new.takeovers, new.running)
