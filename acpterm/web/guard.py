"""Checks each HTTP request before its handler: host, origin, and login or bearer token.

`HttpGuard` refuses, on the upgrade to a WebSocket as well:

- a `Host` that is not the server's: another site's name that resolves to this machine;
- an `Origin` that is not the server's: a page of another site;
- a query: no path takes a query, and a secret in a query would end up in logs and histories;
- a wrong bearer token;
- a version of HTTP other than 1.0 and 1.1.

`HttpGuard` determines what the request may use, its `Grant`. `Protected` then refuses a request
whose access is not enough for the path. A login (see `access`) consists of a cookie, which the
server has set, and a key, which the page has made. A cookie without the key of its login does not
count. So if a browser sends a cookie of the user and one of a share, the key selects the login. Nor
does a cookie count without an `Origin`, which browsers send with each WebSocket and each POST.
`host.user.shared_terminal` decides which methods a share may call.
"""

from typing import Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from acpterm.web.access import AccessStore, Grant
from acpterm.web.endpoint import HttpEndpoint

SUBPROTOCOL: Final = "acpterm"
"""The subprotocol that the server accepts."""
_KEY_SUBPROTOCOL: Final = f"{SUBPROTOCOL}.key."
_KEY_HEADER: Final = b"x-acpterm-key"
_ACCESS: Final = "acpterm.access"


class RefusedError(Exception):
    """A request is refused with the HTTP status `status`; the message says why."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status: Final = status


def access_of(scope: Scope) -> Grant:
    """Return what a request may use; `scope` is that of a request that has passed `Protected`."""
    access: Grant = scope[_ACCESS]
    return access


class HttpGuard:
    """ASGI middleware: checks a request, and stores its `Grant` (or None) in its scope."""

    def __init__(self, app: ASGIApp, endpoint: HttpEndpoint, access: AccessStore) -> None:
        self._app: Final = app
        self._endpoint: Final = endpoint
        self._access: Final = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            scope[_ACCESS] = self._check(scope)
        except RefusedError as refusal:
            await refuse(scope, receive, send, refusal)
            return
        if scope[_ACCESS] is not None:
            scope["state"]["connection"].is_admitted = True
        await self._app(scope, receive, send)

    def _check(self, scope: Scope) -> Grant | None:
        if scope["http_version"] not in ("1.0", "1.1"):
            raise RefusedError(505, "this server speaks HTTP/1.1 only")
        hosts = _values(scope, b"host")
        if len(hosts) != 1 or hosts[0] not in self._endpoint.hosts:
            raise RefusedError(
                421, "this server is not known by the name in Host: see http_origins"
            )
        origins = _values(scope, b"origin")
        if origins and (len(origins) != 1 or origins[0] not in self._endpoint.origins):
            raise RefusedError(
                403, "pages of this Origin may not use this server: see http_origins"
            )
        if scope["query_string"]:
            raise RefusedError(
                400, "no path of this server takes a query; a token does not belong there"
            )
        if authorizations := _values(scope, b"authorization"):
            return self._of_bearer(authorizations)
        return self._of_cookie(scope) if origins else None

    def _of_bearer(self, values: list[str]) -> Grant:
        scheme, _, token = values[0].partition(" ")
        access = self._access.of_bearer(token.strip()) if scheme.lower() == "bearer" else None
        if access is None or len(values) != 1:
            raise RefusedError(
                401,
                "the bearer token is wrong: acpterm token add NAME makes one for an agent, and "
                "acpterm status prints the file of the user's",
            )
        return access

    def _of_cookie(self, scope: Scope) -> Grant | None:
        key = _key(scope)
        if key is None:
            return None
        is_shares = {self._endpoint.cookie: False, self._endpoint.share_cookie: True}
        for header in _values(scope, b"cookie"):
            for pair in header.split(";"):
                name, _, value = pair.strip().partition("=")
                found = self._access.of_cookie(value, key) if name in is_shares else None
                if found is not None and (found.share is not None) == is_shares[name]:
                    return found
        return None


class Protected:
    """ASGI middleware: passes a request on if its access is enough for the path.

    That is the user's login or token; with `share`, also the login of a share; with `bearer_only`,
    only a bearer token: the user's or an agent's.
    """

    def __init__(self, app: ASGIApp, *, share: bool = False, bearer_only: bool = False) -> None:
        self._app: Final = app
        self._share: Final = share
        self._bearer_only: Final = bearer_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        access: Grant | None = scope[_ACCESS]
        if self._bearer_only and (access is None or not access.is_bearer):
            refusal = RefusedError(401, "this path needs the bearer token: Authorization: Bearer …")
        elif access is None:
            refusal = RefusedError(401, "this path needs a login: acpterm open prints a link")
        elif access.agent is not None and not self._bearer_only:
            refusal = RefusedError(403, "an agent's token is only for /mcp and /acp")
        elif access.share is not None and not self._share:
            refusal = RefusedError(403, "a share can only use the terminal that it shares")
        else:
            await self._app(scope, receive, send)
            return
        await refuse(scope, receive, send, refusal)


async def refuse(scope: Scope, receive: Receive, send: Send, refusal: RefusedError) -> None:
    """Send the response to a refused request, which may be a request for a WebSocket."""
    headers = {"WWW-Authenticate": "Bearer"} if refusal.status == 401 else {}
    headers["Connection"] = "close"
    response = PlainTextResponse(f"{refusal}\n", refusal.status, headers)
    if scope["type"] == "websocket":
        await receive()
    # For a WebSocket, starlette sends the messages of the denial response.
    await response(scope, receive, send)


def _values(scope: Scope, name: bytes) -> list[str]:
    return [value.decode("latin-1") for found, value in scope["headers"] if found.lower() == name]


def _key(scope: Scope) -> str | None:
    if scope["type"] == "websocket":
        found = [one for one in scope["subprotocols"] if one.startswith(_KEY_SUBPROTOCOL)]
        return found[0].removeprefix(_KEY_SUBPROTOCOL) if len(found) == 1 else None
    keys = _values(scope, _KEY_HEADER)
    return keys[0] if len(keys) == 1 else None
