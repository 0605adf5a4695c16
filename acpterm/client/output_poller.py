"""Polls one terminal of the host: its output from the beginning, and its exit.

Each read requests the output since a position; the host responds once there is some. Reads are
`POLL_INTERVAL_S` apart, so a flood of output is sampled instead of being read in full. Bytes that
were dropped from the terminal's ring between two reads are counted as lost.

A release makes the terminal's id invalid, and agents release a terminal as soon as it has exited.
So `final_read`, called right before a release is passed on, requests the remaining output and the
exit status. The host receives these two requests before the release, and may respond to them in
either order.
"""

import base64
import contextlib
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
import trio

from acpterm.acp.agent_api import ReadRequest
from acpterm.acp.base import Wire
from acpterm.acp.terminal import TerminalExitStatus, TerminalRequest, WaitForTerminalExitResponse
from acpterm.acp.terminal_updates import ProgramExit
from acpterm.client.session_update import SessionKey
from acpterm.jsonrpc import RpcError
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import Response

READ_METHOD: Final = "_acpterm/terminal/read"
# Maximum number of bytes of one read, and of the final read.
CHUNK_BYTES: Final = 256 * 1024
FINAL_READ_BYTES: Final = 1024 * 1024
POLL_INTERVAL_S: Final = 0.2
# How long the host may delay the response to a read until there is output.
_WAIT_MS: Final = 60_000


class _Chunk(Wire):
    """The result of a `READ_METHOD` request: a piece of a terminal's output.

    `data` is in base64. `position` is the position after `data`, and `lost` is the number of bytes
    that the host has dropped before `data`. `exit_status` is None until the program has exited.
    """

    data: str
    position: int
    lost: int
    exit_status: TerminalExitStatus | None = None


_chunks: Final = msgspec.json.Decoder(_Chunk)
_exit_responses: Final = msgspec.json.Decoder(WaitForTerminalExitResponse)


class OutputPoller:
    """Polls `terminal` through `host` until the terminal's program has exited.

    `on_output` is called with each piece of output and the number of bytes lost before it.
    `on_exit` is called once, with the program's exit, or with an unknown exit if reading fails.
    `drain` is awaited before each read of output. It should wait until the receiver has taken
    earlier output, so that a slow receiver slows the polling down.
    """

    def __init__(
        self,
        host: Endpoint,
        terminal: SessionKey,
        on_output: Callable[[bytes, int], None],
        on_exit: Callable[[ProgramExit], None],
        drain: Callable[[], Awaitable[None]],
    ) -> None:
        self._host = host
        self._session, self._terminal = terminal
        self._on_output = on_output
        self._on_exit = on_exit
        self._drain = drain
        self._position = 0
        self._expedited: Final = trio.Event()
        self._final_read_sent = False
        self.done: Final = trio.Event()
        """Set once `on_exit` was called."""

    async def run(self) -> None:
        """Poll until the program has exited, a request to the host fails, or this is cancelled."""
        try:
            while not self.done.is_set():
                await self._drain()
                chunk = _chunks.decode(
                    await self._host.request(READ_METHOD, self._read_params(CHUNK_BYTES, _WAIT_MS))
                )
                has_output = self._add(chunk)
                if chunk.exit_status is None:
                    with trio.move_on_after(POLL_INTERVAL_S):
                        await self._expedited.wait()
                elif not has_output:
                    self._finish(ProgramExit(chunk.exit_status.exit_code, chunk.exit_status.signal))
        except (RpcError, msgspec.DecodeError):
            # If the terminal was released, the final read calls `on_exit`. Otherwise no response
            # with more output will come.
            if not self._final_read_sent:
                self._finish(ProgramExit(None, None))

    async def catch_up(self) -> None:
        """Read the output so far; if the program has exited, wait until `on_exit` was called.

        If the terminal was released, wait for the rest of its output.
        """
        if self._final_read_sent:
            await self.done.wait()
            return
        with contextlib.suppress(RpcError, msgspec.DecodeError):
            chunk = _chunks.decode(
                await self._host.request(READ_METHOD, self._read_params(FINAL_READ_BYTES, 0))
            )
            self._add(chunk)
            if chunk.exit_status is not None:
                self._expedited.set()
                await self.done.wait()

    def final_read(self) -> None:
        """Request the remaining output and the exit status, and return before the responses come.

        Call this before the request that releases the terminal. Request nothing if `on_exit` or
        `final_read` was called before.
        """
        self._expedited.set()
        if self.done.is_set() or self._final_read_sent:
            return
        self._final_read_sent = True
        exits: list[ProgramExit] = []

        def on_read(response: Response) -> None:
            if not isinstance(response, RpcError):
                with contextlib.suppress(msgspec.DecodeError):
                    self._add(_chunks.decode(response))
            on_either()

        def on_wait(response: Response) -> None:
            # May be called before `on_read`: the host sends a known exit status at once.
            end = ProgramExit(None, None)
            if not isinstance(response, RpcError):
                with contextlib.suppress(msgspec.DecodeError):
                    status = _exit_responses.decode(response)
                    end = ProgramExit(status.exit_code, status.signal)
            exits.append(end)
            on_either()

        outstanding = 2

        def on_either() -> None:
            nonlocal outstanding
            outstanding -= 1
            if not outstanding:
                self._finish(exits[0])

        self._host.call(READ_METHOD, self._read_params(FINAL_READ_BYTES, 0), on_read)
        terminal = TerminalRequest(self._session, self._terminal)
        self._host.call("terminal/wait_for_exit", terminal, on_wait)

    def _read_params(self, max_bytes: int, wait_ms: int) -> ReadRequest:
        return ReadRequest(
            self._session,
            self._terminal,
            self._position,
            max_bytes=max_bytes,
            format="raw",
            wait_ms=wait_ms,
        )

    def _add(self, chunk: _Chunk) -> bool:
        """Pass the new output in a chunk to `on_output`, and move `_position` to the chunk's end.

        Output is new if its position is after `_position`. Return whether there was new output.
        """
        data = base64.b64decode(chunk.data)
        start = chunk.position - len(data)
        lost = max(0, start - self._position)
        new = data[max(0, self._position - start) :]
        self._position = max(self._position, chunk.position)
        if new or lost:
            self._on_output(new, lost)
        return bool(new)

    def _finish(self, end: ProgramExit) -> None:
        if not self.done.is_set():
            self.done.set()
            self._on_exit(end)
