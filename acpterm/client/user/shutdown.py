"""Shuts the daemon down, and waits until its process has exited."""

import contextlib
import os
import select
import signal
import time
from typing import Final, NamedTuple

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import StatusResponse
from acpterm.client.daemon import DaemonError, NoAnswerError, signal_keeper
from acpterm.client.user.blocking_client import BlockingClient, open_blocking_client
from acpterm.config import Settings
from acpterm.jsonrpc import RpcError

# Seconds to wait for the daemon's exit. The daemon itself takes at most five.
_TIMEOUT_S: Final = 8.0
_POLL_S: Final = 0.02


class ShutdownResult(NamedTuple):
    """The outcome of a shutdown of the daemon."""

    pid: int
    """The daemon's process id."""
    running: int | None
    """Number of terminals whose programs were running before the shutdown; None if unknown."""
    gone: bool
    """Whether the daemon's process has exited in time."""


def end_daemon(settings: Settings) -> ShutdownResult:
    """Shut the daemon down, and wait at most `_TIMEOUT_S` until its process has exited.

    If no worker answers, the keeper is signalled. Raises `RpcError` or `DaemonError` if no shutdown
    could be requested.
    """
    try:
        with open_blocking_client(settings, start=False) as client:
            return _end(client)
    except NoAnswerError:
        pid = signal_keeper(settings, signal.SIGTERM)
        with contextlib.closing(_Process(pid)) as process:
            return ShutdownResult(pid, None, gone=process.wait(_TIMEOUT_S))


def _end(client: BlockingClient) -> ShutdownResult:
    status = client.request_no_params("status", StatusResponse)
    with contextlib.closing(_Process(status.pid)) as process:
        # The connection may close before the response arrives, and a daemon that is ending already
        # cancels the request.
        with contextlib.suppress(RpcError, DaemonError):
            client.request_no_params("shutdown", Empty)
        return ShutdownResult(status.pid, status.running, gone=process.wait(_TIMEOUT_S))


class _Process:
    """The daemon's process, whose exit can be waited for.

    If the daemon runs in another container, its process is invisible here. The process then appears
    to have exited, unless a process here has the same pid.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._fd = os.pidfd_open(pid)

    def wait(self, seconds: float) -> bool:
        """Wait for the process's exit; return whether it has exited within `seconds`."""
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
        """Close the descriptor (pidfd) of the process."""
        if self._fd is not None:
            os.close(self._fd)
