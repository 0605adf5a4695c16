"""The daemon: its status, the replacement of its worker, and its end.

A daemon is two processes: the keeper, which owns the programs and the listening sockets, and the
worker, which responds to requests. While there is no worker, new connections wait in the queues of
the listening sockets. The keeper then writes to the lock file beside the agents' socket why there
is no worker, and what the user can do about it.
"""

import contextlib
import os
import select
import signal
import time
from typing import Final, NamedTuple

import msgspec

from acpterm.acp.base import Wire
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import NoParams, StatusResponse
from acpterm.commands.blocking_client import BlockingClient, open_blocking_client
from acpterm.config import Settings, agent_socket
from acpterm.jsonrpc import METHOD_NOT_FOUND, RpcError
from acpterm.link.blocking import DeadlineError
from acpterm.link.daemon import (
    DaemonError,
    NoAnswerError,
    NotRunningError,
    read_lock,
    signal_keeper,
)
from acpterm.link.errors import LostError

ANSWER_TIMEOUT_S: Final = 3.0
"""Seconds to wait for the response to `initialize`, which a running worker sends at once."""
REPLACE_TIMEOUT_S: Final = 40.0
"""Seconds to wait for a new worker. The keeper gives a worker half a minute to be ready, and pauses
between attempts to start one."""
# Seconds to wait for the daemon's exit. The daemon itself takes at most five.
_SHUTDOWN_TIMEOUT_S: Final = 8.0
_POLL_S: Final = 0.02


class NoWorker(Wire):
    """The status of a daemon whose worker does not respond, or that has none, by its lock file."""

    keeper_pid: int | None
    worker_pid: int | None = None
    message: str | None = None


def daemon_status(
    settings: Settings, config: str | None = None, *, start: bool = False
) -> StatusResponse | NoWorker | None:
    """Return the daemon's status: a `NoWorker` if no worker responds, None if no daemon runs."""
    try:
        with open_blocking_client(
            settings, config, start=start, answer_timeout_s=ANSWER_TIMEOUT_S
        ) as client:
            return worker_status(client)
    except NoAnswerError:
        lock = read_lock(settings)
        return NoWorker(keeper_pid=lock.pid, message=lock.message)
    except NotRunningError:
        return None


def source(status: StatusResponse, setting: str) -> str:
    """Return, such as "by default", what has set a setting of the daemon."""
    return f"by {status.sources.get(setting, 'default')}"


def worker_status(client: BlockingClient) -> StatusResponse:
    """Return the daemon's status, as its worker reports it."""
    return client.request_no_params("status", StatusResponse)


class RunningWorker(NamedTuple):
    """The version and the process id of a worker that responds."""

    version: str
    pid: int


class RestartResult(NamedTuple):
    """The result of replacing the worker `old`, which is None if it did not respond."""

    old: RunningWorker | None
    new: RunningWorker
    keeper_pid: int | None
    takeovers: int
    """Number of take-overs since the daemon started."""
    running: int
    """Number of terminals whose programs continue to run."""


def restart_worker(settings: Settings) -> RestartResult:
    """Replace the worker by one of the installed version, or start one; wait until it responds.

    After an error, the old worker, if there is one, continues.
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
    """Signal the keeper to start a worker, and wait until the new worker responds."""
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


def _worker(status: StatusResponse) -> RunningWorker:
    return RunningWorker(status.version, status.worker_pid or status.pid)


def _restarted(old: RunningWorker | None, new: StatusResponse) -> RestartResult:
    return RestartResult(old, _worker(new), new.keeper_pid, new.takeovers, new.running)


class ShutdownResult(NamedTuple):
    """The outcome of a shutdown of the daemon."""

    pid: int
    """The daemon's process id."""
    running: int | None
    """Number of terminals whose programs were running before the shutdown; None if unknown."""
    gone: bool
    """Whether the daemon's process has exited in time."""


def end_daemon(settings: Settings) -> ShutdownResult:
    """Shut the daemon down, by its keeper if no worker answers; wait for its process to exit."""
    try:
        with open_blocking_client(settings, start=False) as client:
            return _end(client)
    except NoAnswerError:
        pid = signal_keeper(settings, signal.SIGTERM)
        with contextlib.closing(_Process(pid)) as process:
            return ShutdownResult(pid, None, gone=process.wait(_SHUTDOWN_TIMEOUT_S))


def _end(client: BlockingClient) -> ShutdownResult:
    status = client.request_no_params("status", StatusResponse)
    with contextlib.closing(_Process(status.pid)) as process:
        # The connection may close before the response arrives, and a daemon that is ending already
        # cancels the request.
        with contextlib.suppress(RpcError, DaemonError):
            client.request_no_params("shutdown", Empty)
        return ShutdownResult(status.pid, status.running, gone=process.wait(_SHUTDOWN_TIMEOUT_S))


class _Process:
    """The daemon's process. In another container it is invisible, and appears to have exited."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._fd = os.pidfd_open(pid)

    def wait(self, seconds: float) -> bool:
        """Return whether it has exited within `seconds`."""
        if self._fd is not None:
            return bool(select.select((self._fd,), (), (), seconds)[0])
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            try:
                os.kill(self._pid, 0)
            except (ProcessLookupError, PermissionError):
                return True
            time.sleep(_POLL_S)
        return False

    def close(self) -> None:
        """Close the pidfd."""
        if self._fd is not None:
            os.close(self._fd)
