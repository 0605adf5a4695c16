"""A WebSocket as a stream of lines, so that `host.server.connection` serves it like a socket.

Each text frame has one JSON message. On the stream, the message is a line. A line end inside a
frame is only white space between JSON tokens, and is replaced by a space.

States: *open*; *ended*, after the peer has closed the WebSocket or sent a frame that is too large:
`receive_some` returns b"", and nothing can be sent; *closed* by `aclose`.

One received frame is stored here until `receive_some` has returned all of it. The frame after it is
stored in the HTTP server's queue. While both are stored, the HTTP server stops reading from the
network. `send_all` waits while the peer does not read.
"""

import contextlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

import trio
from starlette.websockets import WebSocket, WebSocketDisconnect, WebSocketState

from acpterm.web.access import AccessStore
from acpterm.web.guard import SUBPROTOCOL, access_of

TOO_BIG: Final = 1009
GOING_AWAY: Final = 1001
POLICY: Final = 1008
TRY_LATER: Final = 1013
"""A code with which the server closes a WebSocket, like the three above.

They are defined in RFC 6455, section 7.4.1, and by IANA.
"""
CLOSE_TIMEOUT_S: Final = 1.0
"""How long the server waits for a peer that does not read, when it closes a WebSocket."""


class WebSocketStream(trio.abc.Stream):
    """The stream of an accepted WebSocket. Ends after a frame of more than `max_bytes` bytes."""

    def __init__(self, websocket: WebSocket, max_bytes: int) -> None:
        self._websocket: Final = websocket
        self._max_bytes: Final = max_bytes
        self._received = memoryview(b"")
        self._ended = False

    async def receive_some(self, max_bytes: int | None = None) -> bytes:
        """Return the next bytes, of one frame; b"" once the WebSocket has ended."""
        while not self._received:
            if self._ended:
                await trio.lowlevel.checkpoint()
                return b""
            message = await self._websocket.receive()
            if message["type"] == "websocket.disconnect":
                self._ended = True
            elif (text := message.get("text")) is None:
                # ACP's WebSocket transport says that binary frames are ignored.
                continue
            elif len(data := _line(text)) > self._max_bytes + 1:
                await close(self._websocket, TOO_BIG, f"a frame may have {self._max_bytes} bytes")
                self._ended = True
            else:
                self._received = memoryview(data)
        size = len(self._received) if max_bytes is None else max_bytes
        part, self._received = self._received[:size], self._received[size:]
        return bytes(part)

    async def send_all(self, data: bytes | bytearray | memoryview) -> None:
        for line in bytes(data).split(b"\n")[:-1]:
            if self._ended or _is_closed(self._websocket):
                raise trio.BrokenResourceError("the WebSocket has ended")
            try:
                await self._websocket.send_text(line.decode())
            except WebSocketDisconnect as error:
                raise trio.BrokenResourceError("the peer has disconnected") from error

    async def wait_send_all_might_not_block(self) -> None:
        """Return at once: `send_all` itself waits while the peer does not read."""
        await trio.lowlevel.checkpoint()

    async def aclose(self) -> None:
        """Close the WebSocket, unless the peer has closed it. If cancelled, send nothing."""
        await trio.lowlevel.checkpoint()
        await close(self._websocket, GOING_AWAY)


async def accept(websocket: WebSocket) -> None:
    """Accept a WebSocket, with the subprotocol `SUBPROTOCOL` if the client offers it."""
    offered = websocket.scope["subprotocols"]
    await websocket.accept(SUBPROTOCOL if SUBPROTOCOL in offered else None)


@asynccontextmanager
async def ending_with_login(websocket: WebSocket, access: AccessStore) -> AsyncIterator[None]:
    """When the login of an accepted WebSocket ends, cancel the block and close the WebSocket."""
    with access.cancelling(access_of(websocket.scope)) as scope:
        yield
    if scope.cancelled_caught:
        await close(websocket, POLICY, "the login has ended")


async def close(websocket: WebSocket, code: int, reason: str | None = None) -> None:
    """Close a WebSocket, unless either end has closed it already."""
    if _is_closed(websocket):
        return
    with trio.move_on_after(CLOSE_TIMEOUT_S):
        with contextlib.suppress(WebSocketDisconnect):
            await websocket.close(code, reason)


def _is_closed(websocket: WebSocket) -> bool:
    return WebSocketState.DISCONNECTED in (websocket.client_state, websocket.application_state)


def _line(text: str) -> bytes:
    return text.replace("\n", " ").replace("\r", " ").encode(errors="surrogatepass") + b"\n"
