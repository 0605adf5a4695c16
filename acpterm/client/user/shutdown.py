"""Ending the daemon: it has ended when its process has."""

import contextlib
import os
import select
import time
from typing import Final, NamedTuple

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import StatusResponse
from acpterm.client.user.blocking_client import BlockingClient
from acpterm.jsonrpc import RpcError

# Seconds that a daemon has to end; it promises five.
_TIMEOUT_S: Final = 8.0
_POLL_S: Final = 0.02


class ShutdownResult(NamedTuple):
    """Whether a daemon has ended, and how many terminals' programs ran when it was told to end."""

    pid: int
    running: int
    gone: bool


def end_daemon(client: BlockingClient) -> ShutdownResult:
    """Tell the daemon to end, and wait until its process has ended."""
    status = client.request_no_params("status", StatusResponse)
    process = _Process(status.pid)
    try:
        # Its end may come before its answer.
        with contextlib.suppress(RpcError):
            client.request_no_params("shutdown", Empty)
        return ShutdownResult(status.pid, status.running, gone=process.wait(_TIMEOUT_S))
    finally:
        process.close()


class _Process:
    """The daemon's process. It may be invisible here, as that of a container is."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._fd = os.pidfd_open(pid)

    def wait(self, seconds: float) -> bool:
        """Wait for its end; return whether it has ended within `seconds`."""
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
        """Close its descriptor."""
        if self._fd is not None:
            os.close(self._fd)
