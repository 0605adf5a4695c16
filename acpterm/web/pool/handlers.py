"""The HTTP interface of the PTY pool: the handlers of the paths `/ws` and `/pty/spawn`.

Both are for the user's clients.
"""

from typing import Final

import msgspec
import trio
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.websockets import WebSocket, WebSocketDisconnect

from acpterm.acp.agent_api import Cells
from acpterm.acp.base import Wire
from acpterm.acp.lenient import decode
from acpterm.acp.pool import NAME, PoolTerminal, pool_terminal
from acpterm.acp.user_api import UserCreateRequest
from acpterm.host.host import Host
from acpterm.host.user import launch_methods
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.web.access import AccessStore
from acpterm.web.pool.websocket import serve_pool
from acpterm.web.request_body import BodyError, read_body
from acpterm.web.websocket_stream import GOING_AWAY, accept, close, ending_with_login

# A command line can be long.
_BODY_MAX: Final = 4 * 1024 * 1024


class PoolHandlers:
    def __init__(self, host: Host, access: AccessStore) -> None:
        self._host: Final = host
        self._access: Final = access

    async def socket(self, websocket: WebSocket) -> None:
        """Serve a client on `/ws` until it closes the WebSocket, or its login ends."""
        await accept(websocket)
        async with ending_with_login(websocket, self._access):
            with self._host.local_user() as user:
                await serve_pool(_Frames(websocket), user)
        await close(websocket, GOING_AWAY)

    async def spawn(self, request: Request) -> Response:
        """Create a terminal of the user; respond with the terminal, or with `{"error": …}`."""
        try:
            body = await read_body(request, _BODY_MAX)
            with self._host.local_user() as user:
                terminal = await spawn(user, body)
        except BodyError as error:
            return JSONResponse({"error": str(error)}, 400)
        except RpcError as error:
            status = 500 if error.code == INTERNAL_ERROR else 400
            return JSONResponse({"error": error.message}, status)
        return Response(msgspec.json.encode(terminal), media_type="application/json")


class _Frames:
    """A starlette WebSocket as a `channel.TextSocket`."""

    def __init__(self, websocket: WebSocket) -> None:
        self._websocket: Final = websocket

    async def receive(self) -> str | bytes | None:
        message = await self._websocket.receive()
        if message["type"] == "websocket.disconnect":
            return None
        text: str | None = message.get("text")
        return message.get("bytes") or b"" if text is None else text

    async def send(self, text: str) -> None:
        try:
            await self._websocket.send_text(text)
        except (WebSocketDisconnect, RuntimeError) as error:
            raise trio.BrokenResourceError from error


class SpawnRequest(Wire):
    """The body of a request: what to run, where, and the terminal's size; all are optional."""

    command: list[str] | None = None
    cwd: str | None = None
    cols: Cells | None = None
    rows: Cells | None = None


async def spawn(user: UserConnection, body: bytes) -> PoolTerminal:
    """Create the terminal that the body of a request describes, for the client of `user`."""
    request = decode(body.strip() or b"{}", SpawnRequest, "the request")
    shell = user.context.env.get("SHELL") or "/bin/sh"
    program, *args = request.command or [shell]
    params = UserCreateRequest(
        command=program, args=args, cwd=request.cwd, name=NAME, cols=request.cols, rows=request.rows
    )
    return pool_terminal(await launch_methods.create(user, params))
