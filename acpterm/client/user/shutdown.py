"""The daemon's end, as whoever asks for it sees it: it is over when its process is."""

import contextlib
import os
from typing import Final, NamedTuple

import trio

from acpterm.acp import Empty
from acpterm.acp.user_api import StatusResponse
from acpterm.client.user.client import UserClient
from acpterm.jsonrpc import RpcError

# Seconds that a daemon has to end; it promises five.
_TIMEOUT_S: Final = 8.0
_POLL_S: Final = 0.02


class ShutdownResult(NamedTuple):
    """What became of a daemon, and how many terminals' programs ran when it was told to end."""

    pid: int
    running: int
    gone: bool


async def end_daemon(client: UserClient) -> ShutdownResult:
    """Have the daemon end, and wait until it is gone."""
    status = await client.request_no_params("status", StatusResponse)
    process = _Process(status.pid)
    try:
        with contextlib.suppress(RpcError):  # its end may come before its answer
            await client.request_no_params("shutdown", Empty)
        with trio.move_on_after(_TIMEOUT_S):
            await process.wait()
            return ShutdownResult(status.pid, status.running, gone=True)
        return ShutdownResult(status.pid, status.running, gone=False)
    finally:
        process.close()


class _Process:
    """The daemon's process, which need not be ours to see: one of a container's is not."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._fd: int | None = None
        if hasattr(os, "pidfd_open"):
            with contextlib.suppress(OSError):
                self._fd = os.pidfd_open(pid)

    async def wait(self) -> None:
        """Wait for its end."""
        if self._fd is not None:
            await trio.lowlevel.wait_readable(self._fd)
            return
        with contextlib.suppress(ProcessLookupError, PermissionError):
            while True:
                os.kill(self._pid, 0)
                await trio.sleep(_POLL_S)

    def close(self) -> None:
        """Close what it is known by."""
        if self._fd is not None:
            os.close(self._fd)
