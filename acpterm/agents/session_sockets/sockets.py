"""The sockets of all sessions of one agent, in a private directory that is removed at the end.

A session gets its socket before the agent receives the request that opens the session, since that
request tells the agent where the socket is. `opening` is called with that request, and `opened` or
`failed` with its response. A session that is open keeps its socket if it is opened again.
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

from acpterm.acp.raw_json import text
from acpterm.agents.session_sockets.routes import EventRoutes
from acpterm.agents.session_sockets.server_entry import McpOptions, with_server
from acpterm.agents.session_sockets.socket_client import SocketClient
from acpterm.jsonrpc import Id
from acpterm.link.daemon import PATH_BYTES_MAX
from acpterm.link.endpoint import Endpoint
from acpterm.runtime.unix_socket import peer_of

_QUEUED_MAX: Final = 16
# One MCP server is expected. It may connect again before the end of its old connection is noticed.
CLIENTS_MAX: Final = 16

_log = structlog.get_logger("acpterm.mcp")


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
