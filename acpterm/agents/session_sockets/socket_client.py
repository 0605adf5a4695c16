"""Relays the requests of one client of a session's socket to the host, with the session's id.

The client is an MCP server that the agent has started. `initialize` is answered here, as the host
would answer it. All other requests wait until the id of the session is known, since the agent
starts its MCP servers while it opens the session. Only methods for agents are passed on: the
connection to the host may be an approver's, which may also answer questions to the user, but an MCP
server must not answer them.

States: *waiting* for the session's id, *bound*, *closed*. When the client closes the connection, or
the session is closed, the client's pending requests are cancelled, and the terminals that the
client has created and not released are released. A terminal that is created after that is released
at once.
"""

from typing import Any, Final

import trio
from msgspec import Raw

from acpterm import __version__
from acpterm.acp.agent_api import EVENTS, EXTENSION_METHODS
from acpterm.acp.agent_meta import EXTENSIONS, OWN
from acpterm.acp.initialize import host_answer
from acpterm.acp.raw_json import members, text
from acpterm.acp.terminal import TERMINAL_METHODS, TerminalRequest
from acpterm.agents.session_sockets.routes import EventRoutes
from acpterm.jsonrpc import (
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    Id,
    RequestReceived,
    RpcError,
    quote,
)
from acpterm.link.daemon_stream import Connected
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import Response, ignore
from acpterm.link.trio_stream import TrioStream

_METHODS: Final = frozenset((*TERMINAL_METHODS, *EXTENSION_METHODS))
# Maximum number of one client's requests that wait for the session's id.
_WAITING_MAX: Final = 100


class SocketClient:
    """Relays between `host` and the client at the other end of `stream`."""

    def __init__(
        self, stream: trio.abc.Stream, host: Endpoint, routes: EventRoutes, profile: str | None
    ) -> None:
        self._host = host
        self._routes = routes
        self._profile = profile
        self._session: str | None = None
        self._waiting: list[RequestReceived] = []
        self._host_ids: dict[Id, int] = {}
        self._tokens: dict[Id, str] = {}
        self._is_closed = False
        self.terminals: Final[dict[str, str | None]] = {}
        """The names, if any, of the terminals that the client has created and not released."""
        self._endpoint = Endpoint(
            Connected(TrioStream(stream)),
            "the MCP server",
            on_request=self._on_request,
            on_cancel=self._on_cancel,
            throttle=host.drain,
        )

    async def run(self) -> None:
        """Relay until the client closes the connection or this is cancelled."""
        try:
            await self._endpoint.run()
        finally:
            self._close()

    def bind(self, session: str) -> None:
        """Pass on the requests that have waited for the session's id, and all later ones."""
        self._session = session
        waiting, self._waiting = self._waiting, []
        for request in waiting:
            self._forward(request, session)

    def _on_request(self, request: RequestReceived) -> None:
        if request.id in self._host_ids or any(one.id == request.id for one in self._waiting):
            # The id is null, since the endpoint refuses other ids that are in use. Two requests
            # with a null id cannot be distinguished.
            message = "a request with the id null is pending: use an id that no other request has"
            self._endpoint.respond(request.id, RpcError(INVALID_REQUEST, message))
        elif request.method == "initialize":
            self._initialize(request)
        elif request.method not in _METHODS:
            message = f"there is no method {quote(request.method)} here"
            self._endpoint.respond(request.id, RpcError(METHOD_NOT_FOUND, message))
        elif self._session is not None:
            self._forward(request, self._session)
        elif len(self._waiting) < _WAITING_MAX:
            self._waiting.append(request)
        else:
            message = f"{_WAITING_MAX} requests wait for the session to be open: wait for it first"
            self._endpoint.respond(request.id, RpcError(INVALID_REQUEST, message))

    def _initialize(self, request: RequestReceived) -> None:
        own = members(members(members(request.params).get("_meta")).get(OWN))
        requested = text(own.get("profile"))
        if requested not in (None, self._profile):
            message = (
                f"the profile {quote(requested or '')} cannot be used for one session of an agent: "
                "choose it for all terminals of the agent, with --profile before --mcp"
            )
            self._endpoint.respond(request.id, RpcError(INVALID_PARAMS, message))
            return
        self._endpoint.respond(request.id, host_answer(__version__, EXTENSIONS))

    def _forward(self, request: RequestReceived, session: str) -> None:
        id_, method = request.id, request.method
        params: dict[str, Any] = {**members(request.params), "sessionId": session}
        if method == EVENTS and (token := params.get("token")) is not None:
            params["token"] = self._tokens[id_] = self._routes.add(token, self._notify)

        def on_response(response: Response) -> None:
            self._host_ids.pop(id_, None)
            if (used := self._tokens.pop(id_, None)) is not None:
                self._routes.remove(used)
            if not isinstance(response, RpcError):
                self._on_result(method, params, response)
            self._endpoint.respond(id_, response)

        host_id = self._host.call(method, params, on_response)
        if host_id is not None:
            self._host_ids[id_] = host_id

    def _on_result(self, method: str, params: dict[str, Any], result: Raw) -> None:
        if method == "terminal/create":
            created = members(result)
            terminal = text(created.get("terminalId"))
            if terminal is not None:
                own = members(members(created.get("_meta")).get(OWN))
                self.terminals[terminal] = text(own.get("name"))
            if self._is_closed:
                self._release()
        elif method == "terminal/release":
            self._forget(text(params.get("terminalId")))

    def _forget(self, released: str | None) -> None:
        """Remove the terminal with the id or name `released` from `terminals`, if there is one."""
        if released in self.terminals:
            del self.terminals[released]
            return
        # Several terminals may have had the name, one after the other: the host uses the latest.
        for terminal, name in reversed(self.terminals.items()):
            if name is not None and name == released:
                del self.terminals[terminal]
                return

    def _notify(self, method: str, params: dict[str, Any]) -> None:
        # Drop the event if the client reads too slowly: it can request the terminal's state later.
        if not self._endpoint.is_full:
            self._endpoint.notify(method, params)

    def _on_cancel(self, id_: Id) -> None:
        for request in self._waiting:
            if request.id == id_:
                self._waiting.remove(request)
                self._endpoint.respond(
                    id_, RpcError(REQUEST_CANCELLED, "the request was cancelled")
                )
                return
        if (host_id := self._host_ids.get(id_)) is not None:
            self._host.cancel(host_id)

    def _close(self) -> None:
        self._is_closed = True
        for host_id in list(self._host_ids.values()):
            self._host.cancel(host_id)
        for used in self._tokens.values():
            self._routes.remove(used)
        self._release()

    def _release(self) -> None:
        if self._session is not None:
            for terminal in self.terminals:
                params = TerminalRequest(self._session, terminal)
                self._host.call("terminal/release", params, ignore)
        self.terminals.clear()
