"""The sockets of all sessions of one agent, in a private directory that is removed at the end.

A session gets its socket before the agent receives the request that opens the session, since that
request tells the agent where the socket is. `opening` is called with that request, and `opened` or
`failed` with its response. A session that is open keeps its socket if it is opened again.

`SocketClient` relays the requests of one client to the host, with the session's id.

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

import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager, suppress
from typing import Any, Final

import structlog
import trio
from msgspec import Raw

from acpterm import __version__
from acpterm.acp.agent_api import EVENTS, EXTENSION_METHODS
from acpterm.acp.agent_meta import EXTENSIONS, OWN
from acpterm.acp.initialize import host_answer
from acpterm.acp.raw_json import members, text
from acpterm.acp.terminal import TERMINAL_METHODS, TerminalRequest
from acpterm.agents.session_sockets.routes import EventRoutes
from acpterm.agents.session_sockets.server_entry import McpOptions, with_server
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
from acpterm.link.daemon import PATH_BYTES_MAX
from acpterm.link.daemon_stream import Connected
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import Response, ignore
from acpterm.link.trio_stream import TrioStream
from acpterm.runtime.unix_socket import peer_of

_QUEUED_MAX: Final = 16
# One MCP server is expected. It may connect again before the end of its old connection is noticed.
CLIENTS_MAX: Final = 16

_log = structlog.get_logger("acpterm.mcp")

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


class SessionSocket:
    """A socket that listens at `path` as soon as this object is created; `run` accepts clients.

    States: *unbound*, until the id of the session is known; *bound*; *closed*: the socket file is
    removed, the clients are disconnected, and their terminals end. Clients cannot request another
    `profile` than the one that the user has chosen, if any.
    """

    def __init__(self, path: str, host: Endpoint, routes: EventRoutes, profile: str | None) -> None:
        self.path: Final = path
        self._host = host
        self._routes = routes
        self._profile = profile
        self.session: str | None = None
        """The id of the session; None until it is known."""
        self._clients: set[SocketClient] = set()
        self._scope = trio.CancelScope()
        listener = socket.socket(socket.AF_UNIX)
        try:
            listener.bind(path)
            listener.listen(_QUEUED_MAX)
        except BaseException:
            listener.close()
            raise
        self._listener = trio.SocketListener(trio.socket.from_stdlib_socket(listener))

    async def run(self) -> None:
        """Accept and serve clients until `close` is called or this is cancelled."""
        try:
            with self._scope:
                await trio.serve_listeners(self._serve, [self._listener])
        finally:
            self._listener.socket.close()
            with suppress(FileNotFoundError):
                os.unlink(self.path)

    def bind(self, session: str) -> None:
        """Pass the clients' requests on to the host from now on, with the session id `session`."""
        self.session = session
        for client in self._clients:
            client.bind(session)

    def close(self) -> None:
        """Stop listening, and disconnect all clients, whose terminals are released."""
        self._scope.cancel()

    async def _serve(self, stream: trio.SocketStream) -> None:
        if (refusal := self._refusal(stream)) is not None:
            _log.warning("connection refused", reason=refusal)
            await stream.aclose()
            return
        client = SocketClient(stream, self._host, self._routes, self._profile)
        self._clients.add(client)
        if self.session is not None:
            client.bind(self.session)
        try:
            await client.run()
        finally:
            self._clients.discard(client)

    def _refusal(self, stream: trio.SocketStream) -> str | None:
        try:
            uid = peer_of(stream.socket).uid
        except OSError as error:
            # On macOS, for a client that has disconnected already.
            return f"its user cannot be determined: {error.strerror}"
        if uid != os.geteuid():
            return f"it is another user's (uid {uid})"
        if len(self._clients) >= CLIENTS_MAX:
            return f"the session has {CLIENTS_MAX} connections already"
        return None


_NAME_BYTES: Final = 8
# Bytes that a socket's path has after the path of the directory's parent.
_ADDED_BYTES: Final = len("/acpterm-mcp-") + 8 + 1 + 2 * _NAME_BYTES

_log = structlog.get_logger("acpterm.mcp")


class SessionSockets:
    """The sockets in `directory`, one for each session; their tasks run in `nursery`."""

    def __init__(
        self,
        directory: str,
        host: Endpoint,
        routes: EventRoutes,
        options: McpOptions,
        nursery: trio.Nursery,
    ) -> None:
        self._directory = directory
        self._host = host
        self._routes = routes
        self._options = options
        self._nursery = nursery
        self._sockets: dict[str, SessionSocket] = {}
        # The sockets of the requests without a response, by the id of the request.
        self._opening: dict[Id, SessionSocket] = {}
        # The sockets that were created for a request without a response.
        self._new: set[SessionSocket] = set()

    def opening(
        self, id_: Id, fields: dict[str, Raw], *, session: str | None = None, is_v2: bool = False
    ) -> dict[str, Any]:
        """Create a session's socket if there is none; return `fields` with acpterm's MCP server."""
        socket = None if session is None else self._sockets.get(session)
        if socket is None:
            try:
                socket = self._listen()
            except OSError as error:
                _log.error("no socket can be created for a session", error=error.strerror)
                return {**fields}
            self._new.add(socket)
            if session is not None:
                self._sockets[session] = socket
                socket.bind(session)
        self._opening[id_] = socket
        cwd = text(fields.get("cwd"))
        servers = with_server(
            fields.get("mcpServers"), self._options, socket.path, cwd, is_v2=is_v2
        )
        return {**fields, "mcpServers": servers}

    def opened(self, id_: Id, session: str) -> None:
        """Bind the socket for the request `id_` to `session`, which the agent has opened."""
        if (socket := self._opening.pop(id_, None)) is None:
            return
        self._new.discard(socket)
        if socket.session is None:
            self.close(session)
            self._sockets[session] = socket
            socket.bind(session)

    def failed(self, id_: Id) -> None:
        """Close the socket for the request `id_`, which should have opened a session but failed."""
        socket = self._opening.pop(id_, None)
        # It stays if the session was open before, or if another request may still open it.
        if socket not in self._new or socket in self._opening.values():
            return
        if socket.session is not None:
            self.close(socket.session)
        else:
            self._close(socket)

    def close(self, session: str) -> None:
        """Close the socket of a session; the terminals that were created over it are released."""
        if (socket := self._sockets.pop(session, None)) is not None:
            self._close(socket)

    def _close(self, socket: SessionSocket) -> None:
        self._new.discard(socket)
        socket.close()

    def _listen(self) -> SessionSocket:
        path = os.path.join(self._directory, secrets.token_hex(_NAME_BYTES))
        socket = SessionSocket(path, self._host, self._routes, self._options.profile)
        self._nursery.start_soon(socket.run)
        return socket


@asynccontextmanager
async def open_session_sockets(
    host: Endpoint, routes: EventRoutes, options: McpOptions
) -> AsyncIterator[SessionSockets]:
    """Create the sockets' directory, for the duration of the block; yield the `SessionSockets`."""
    parents = [os.environ.get("XDG_RUNTIME_DIR") or tempfile.gettempdir(), tempfile.gettempdir()]
    directory = tempfile.mkdtemp(prefix="acpterm-mcp-", dir=_parent(parents))
    try:
        async with trio.open_nursery() as nursery:
            yield SessionSockets(directory, host, routes, options, nursery)
            nursery.cancel_scope.cancel()
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def _parent(parents: Iterable[str]) -> str:
    for parent in parents:
        fits = len(os.fsencode(parent)) + _ADDED_BYTES <= PATH_BYTES_MAX
        if fits and os.path.isabs(parent) and os.access(parent, os.W_OK | os.X_OK):
            return parent
    return "/tmp"  # noqa: S108  `mkdtemp` creates a private directory
