"""Accepts a WebSocket that a page opens, and closes it when the page's login ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from starlette.websockets import WebSocket

from acpterm.web.access import AccessStore
from acpterm.web.guard import SUBPROTOCOL, access_of
from acpterm.web.websocket_stream import POLICY, close


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
