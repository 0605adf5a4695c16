"""`/mcp`: the tools of `acpterm mcp` over streamable HTTP, for clients with the bearer token.

The path selects the set of tools: `/mcp/NAME` selects the set NAME, and `/mcp` selects the set
`session`. Two headers have what `acpterm mcp` on stdio takes from its working directory and its
command line: `Acpterm-Cwd` is the directory that the agent works in (percent-encoded; by default
the home directory), and `Acpterm-Profile` is the name of an additional profile.

The SDK is large, and most daemons do not need it: the first request imports it, in a thread.
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import TYPE_CHECKING, Final
from urllib.parse import unquote_to_bytes

import trio
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

from acpterm.host.host import Host
from acpterm.runtime.extras import MCP, how_to_install
from acpterm.runtime.threads import run_blocking
from acpterm.web.access import AccessStore
from acpterm.web.guard import access_of

if TYPE_CHECKING:
    from acpterm.web.mcp_sessions import McpSessions

CWD_HEADER: Final = "acpterm-cwd"
PROFILE_HEADER: Final = "acpterm-profile"
_SESSIONS: Final = "acpterm.web.mcp_sessions"


class McpHandler:
    """The ASGI application at `/mcp` and `/mcp/{tools}`, within a block `lifespan`."""

    def __init__(self, host: Host, access: AccessStore) -> None:
        self._host: Final = host
        self._access: Final = access
        self._nursery: trio.Nursery | None = None
        self._loading: Final = trio.Lock()
        self._home: Final = os.path.expanduser("~")
        self._sessions: McpSessions | None = None

    @asynccontextmanager
    async def lifespan(self, app: object) -> AsyncIterator[None]:
        """Run the sessions of all clients during the block; then end sessions and terminals."""
        del app
        async with trio.open_nursery() as nursery:
            self._nursery = nursery
            try:
                yield
            finally:
                self._nursery = self._sessions = None
                nursery.cancel_scope.cancel()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request. The response is 503 outside of `lifespan`, 501 without the SDK."""
        nursery = self._nursery
        if nursery is None:
            await PlainTextResponse("the server is ending\n", 503)(scope, receive, send)
            return
        try:
            async with self._loading:
                if self._sessions is None:
                    self._sessions = await self._load(nursery)
        except ImportError:
            why = f"this path needs the MCP SDK: {how_to_install(MCP)}\n"
            await PlainTextResponse(why, 501)(scope, receive, send)
            return
        headers = Headers(scope=scope)
        cwd = os.fsdecode(unquote_to_bytes(headers.get(CWD_HEADER, "")))
        if cwd and (not os.path.isabs(cwd) or "\0" in cwd):
            why = f"{CWD_HEADER} must be an absolute path\n"
            await PlainTextResponse(why, 400)(scope, receive, send)
            return
        tools = scope.get("path_params", {}).get("tools", "session")
        await self._sessions.handle(
            scope,
            receive,
            send,
            tools=tools,
            cwd=cwd or self._home,
            profile=headers.get(PROFILE_HEADER) or None,
            access=access_of(scope),
        )

    async def _load(self, nursery: trio.Nursery) -> "McpSessions":
        module = await run_blocking(lambda: import_module(_SESSIONS))
        sessions: McpSessions = module.McpSessions(self._host, self._access, nursery)
        await nursery.start(sessions.run)
        return sessions
