"""The socket of one session, and its clients.

The socket accepts clients until it is closed. States:

- *unbound*, from the beginning: the id of the session is not known yet.
- *bound* to the session, from the call of `bind`: the id is known.
- *closed*: the socket file is removed, the clients are disconnected, and their terminals end.
"""

import os
import socket
from contextlib import suppress
from typing import Final

import structlog
import trio

from acpterm.client.endpoint import Endpoint
from acpterm.client.session_sockets.routes import EventRoutes
from acpterm.client.session_sockets.socket_client import SocketClient
from acpterm.runtime.unix_socket import peer_of

_QUEUED_MAX: Final = 16
# One MCP server is expected. It may connect again before the end of its old connection is noticed.
CLIENTS_MAX: Final = 16

_log = structlog.get_logger("acpterm.mcp")


class SessionSocket:
    """A socket that listens at `path` as soon as this object is created; `run` accepts clients.

    `host` is the connection to the host, and `routes` passes on the events that clients request
    from the host. `profile` is the profile that the user has chosen for the agent, if any; clients
    cannot request another one. Raises `OSError` if the socket cannot be created.
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
        """Return why the client on `stream` is refused; None if it is accepted."""
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
