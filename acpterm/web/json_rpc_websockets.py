"""The WebSockets of the page (`/user`) and of agents (`/acp`): one JSON-RPC message per frame.

On `/acp`, an agent can call the same methods as on the daemon's socket for agents. On `/user`, a
page can call only some of the methods of the user's socket (`PAGE_METHODS`), and a visitor of a
share even fewer. A connection on `/user` ends when the login of its browser ends.
"""

import os
import pwd
import uuid
from typing import Final

from starlette.websockets import WebSocket

from acpterm.host.host import Host
from acpterm.host.server.dispatch import MethodTable
from acpterm.host.user.methods import USER_METHODS
from acpterm.host.user.shared_terminal import share_methods_table
from acpterm.runtime.exec_context import ExecContext
from acpterm.web.access import SHARE_CONNECTIONS_MAX, AccessStore
from acpterm.web.guard import access_of
from acpterm.web.websocket_stream import (
    TRY_LATER,
    WebSocketStream,
    accept,
    close,
    ending_with_login,
)

# Code that gets into the page must not end or replace the daemon, nor obtain a link or a token that
# it could use elsewhere.
_NOT_FOR_PAGES: Final = frozenset(
    {
        "_acpterm/approver",
        "_acpterm/restart",
        "_acpterm/shutdown",
        "_acpterm/token/create",
        "_acpterm/web/open",
    }
)
SHARE_MESSAGE_BYTES: Final = 1 << 20
"""The size of the largest message that is accepted from a visitor of a share, in bytes.

It is lower than for the user's pages, since a visitor may be any browser that has the link.
"""
PAGE_METHODS: Final = MethodTable(
    {name: one for name, one in USER_METHODS.requests.items() if name not in _NOT_FOR_PAGES}, {}
)
"""The methods of the user API that are available on `/user`, without a share."""


class JsonRpcWebSockets:
    def __init__(self, host: Host, access: AccessStore) -> None:
        self._host: Final = host
        self._access: Final = access

    async def user(self, websocket: WebSocket) -> None:
        """Serve a page: all `PAGE_METHODS` for the user, fewer methods for a visitor of a share."""
        await accept(websocket)
        methods, share = PAGE_METHODS, access_of(websocket.scope).share
        if share is not None:
            if self._access.connections_of(share.id) >= SHARE_CONNECTIONS_MAX:
                await close(websocket, TRY_LATER, "too many pages use this share")
                return
            methods = share_methods_table(share.id, share.terminal_id, write=share.write)
            websocket.scope["state"]["connection"].max_message_bytes = SHARE_MESSAGE_BYTES
        async with ending_with_login(websocket, self._access):
            await self._host.serve_user(
                self._stream(websocket), self._context(), methods, answers_as="page"
            )

    def _context(self) -> ExecContext:
        # A shell that the user opens begins as one of a login, wherever the daemon was started.
        context = self._host.context
        shell = pwd.getpwuid(os.getuid()).pw_shell or "/bin/sh"
        return context._replace(
            cwd=os.path.expanduser("~"), env={"SHELL": shell} | dict(context.env)
        )

    async def agent(self, websocket: WebSocket) -> None:
        """Serve an agent. The header `Acp-Connection-Id` is part of the transport."""
        await websocket.accept(headers=[(b"acp-connection-id", str(uuid.uuid4()).encode())])
        async with ending_with_login(websocket, self._access):
            await self._host.serve(self._stream(websocket), self._host.context)

    def _stream(self, websocket: WebSocket) -> WebSocketStream:
        return WebSocketStream(websocket, self._host.settings.max_message_bytes)
