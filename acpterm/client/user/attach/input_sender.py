"""Sends input from the attached window to the terminal, with a limit on unconfirmed input.

Input is sent in requests. The daemon responds to a request when it has written the request's input
to the terminal; until then, this input is unconfirmed. If the program stops reading and the limit
is reached, further input is dropped and the bell rings. So the window's input is still read, and
the detach keys are still found.
"""

import base64
from typing import Final

import trio

from acpterm.acp.user_api import UserWriteRequest
from acpterm.client.endpoint import Response
from acpterm.client.user.attach.tty import Printer
from acpterm.client.user.client import UserClient
from acpterm.jsonrpc import RpcError

# Maximum bytes of input that were sent and that the daemon has not confirmed.
_UNCONFIRMED_BYTES_MAX: Final = 1024 * 1024
# Seconds that further input waits for a confirmation before it is dropped.
_CONFIRM_TIMEOUT_S: Final = 2.0
# Maximum bytes of input in one request.
_CHUNK_BYTES: Final = 48 * 1024
_BELL: Final = b"\a"


class InputSender:
    """A sender of input to the terminal with the id `terminal_id`; prints bells with `printer`."""

    def __init__(self, client: UserClient, terminal_id: str, printer: Printer) -> None:
        self._client = client
        self._terminal_id = terminal_id
        self._printer = printer
        self._unconfirmed_bytes = 0
        # Whether input was dropped, and the daemon has confirmed none since.
        self._is_stuck = False
        self._confirmed = trio.lowlevel.ParkingLot()

    async def send(self, data: bytes) -> None:
        """Send `data` without waiting until the daemon confirms it.

        If too much input is unconfirmed, wait for at most `_CONFIRM_TIMEOUT_S`. If there is still
        too much after that, drop the input and ring the bell. More input is then dropped at once,
        until the daemon confirms some of the earlier input. The bell also rings for each request
        that fails, for example because the connection was lost.
        """
        for at in range(0, len(data), _CHUNK_BYTES):
            await self._send_chunk(data[at : at + _CHUNK_BYTES])

    async def _send_chunk(self, data: bytes) -> None:
        with trio.move_on_after(0 if self._is_stuck else _CONFIRM_TIMEOUT_S):
            while self._unconfirmed_bytes + len(data) > _UNCONFIRMED_BYTES_MAX:
                await self._confirmed.park()
        if self._unconfirmed_bytes + len(data) > _UNCONFIRMED_BYTES_MAX:
            self._is_stuck = True
            self._printer.put(_BELL)
            return
        self._unconfirmed_bytes += len(data)

        def on_response(response: Response) -> None:
            self._unconfirmed_bytes -= len(data)
            self._is_stuck = False
            self._confirmed.unpark_all()
            if isinstance(response, RpcError):
                self._printer.put(_BELL)

        params = UserWriteRequest(self._terminal_id, base64.b64encode(data).decode(), "base64")
        self._client.send("terminal/write", params, on_response)

    async def flush(self) -> None:
        """Wait until the daemon has responded to all requests with input."""
        while self._unconfirmed_bytes:
            await self._confirmed.park()
