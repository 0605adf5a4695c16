"""The ASGI application: the handler of each path, and the access that the path needs.

Requests pass `HttpGuard`, then the routes. Each route is `Protected`, with the
access that it needs, except the routes of the page and `/login`.
"""

from typing import Final

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.routing import Route, WebSocketRoute

from acpterm.host.host import Host
from acpterm.web.access import AccessStore
from acpterm.web.endpoint import HttpEndpoint
from acpterm.web.guard import HttpGuard, Protected
from acpterm.web.json_rpc_websockets import JsonRpcWebSockets
from acpterm.web.login import Logins
from acpterm.web.mcp_handler import McpHandler
from acpterm.web.pages import DIRECTORY, page_routes
from acpterm.web.pool.handlers import PoolHandlers

_USER: Final = Middleware(Protected)
_USER_OR_SHARE: Final = Middleware(Protected, share=True)
_BEARER: Final = Middleware(Protected, bearer_only=True)


def make_app(
    host: Host, endpoint: HttpEndpoint, access: AccessStore, page: str = DIRECTORY
) -> Starlette:
    """Return the application that serves `host`; the page's files are in the directory `page`."""
    logins = Logins(endpoint, access, host.guard.trail)
    sockets = JsonRpcWebSockets(host, access)
    mcp, pool = McpHandler(host, access), PoolHandlers(host, access)
    app = Starlette(
        routes=[
            *page_routes(page),
            Route("/login", logins.log_in, methods=["POST"]),
            Route("/logout", logins.log_out, methods=["POST"], middleware=[_USER_OR_SHARE]),
            Route("/access", logins.describe, methods=["POST"], middleware=[_USER_OR_SHARE]),
            WebSocketRoute("/user", sockets.user, middleware=[_USER_OR_SHARE]),
            Route("/mcp", mcp, middleware=[_BEARER]),
            Route("/mcp/{tools}", mcp, middleware=[_BEARER]),
            WebSocketRoute("/acp", sockets.agent, middleware=[_BEARER]),
            WebSocketRoute("/ws", pool.socket, middleware=[_USER]),
            Route("/pty/spawn", pool.spawn, methods=["POST"], middleware=[_USER]),
        ],
        middleware=[Middleware(HttpGuard, endpoint=endpoint, access=access)],
        lifespan=mcp.lifespan,
    )
    # Otherwise starlette would redirect a path with a slash at its end, which is not documented.
    app.router.redirect_slashes = False
    return app
