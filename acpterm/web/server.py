"""Accepts the connections of the HTTP server, up to a limit.

At most `CONNECTIONS_MAX` are open at a time. At most `STRANGERS_MAX` of these may be *strangers*: a
connection is a stranger until a request on it has a valid login or token. Any program on the
machine, and any page in a browser, can open strangers. Further connections are refused with the
status 503. Each refusal takes a task for at most `_REFUSAL_S` seconds. While there are
`_REFUSALS_MAX` such tasks, and always with TLS, further connections are closed without a response.
"""

import ssl
from typing import Final

import structlog
import trio

from acpterm.runtime.descriptors import NO_ROOM, reserve
from acpterm.web.http_connection import App, HttpConnection, Stream

CONNECTIONS_MAX: Final = 256
STRANGERS_MAX: Final = 32
_RETRY_S: Final = 0.1
_REFUSAL_S: Final = 1.0
_REFUSALS_MAX: Final = 16
_REFUSAL: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain\r\nContent-Length: 21\r\n"
    b"Connection: close\r\n\r\ntoo many connections\n"
)

_log = structlog.get_logger("acpterm.web")


class HttpServer:
    """Serves `app` on a listening socket, with HTTPS if `tls` is not None."""

    def __init__(self, app: App, max_message_bytes: int, tls: ssl.SSLContext | None) -> None:
        self._app: Final = app
        self._max_message_bytes: Final = max_message_bytes
        self._tls: Final = tls
        self.connections: Final[set[HttpConnection]] = set()
        """The connections that are served now."""
        self._refusing = 0

    async def run(self, listener: trio.SocketListener) -> None:
        async with trio.open_nursery() as nursery:
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:
                    if error.errno not in NO_ROOM:
                        raise
                    _log.warning("no connection can be accepted now", error=error.strerror)
                    await trio.sleep(_RETRY_S)
                    continue
                if self._has_room and reserve.refill():
                    nursery.start_soon(self._serve, stream)
                elif self._refusing < _REFUSALS_MAX and self._tls is None:
                    nursery.start_soon(self._refuse, stream)
                else:
                    await trio.aclose_forcefully(stream)

    @property
    def _has_room(self) -> bool:
        strangers = sum(not one.is_admitted for one in self.connections)
        return len(self.connections) < CONNECTIONS_MAX and strangers < STRANGERS_MAX

    async def _serve(self, stream: trio.SocketStream) -> None:
        served: Stream = stream
        if self._tls is not None:
            served = trio.SSLStream(stream, self._tls, server_side=True, https_compatible=True)
        connection = HttpConnection(self._app, served, self._max_message_bytes)
        self.connections.add(connection)
        try:
            await connection.serve()
        except* (OSError, trio.BrokenResourceError):
            # The peer is gone.
            pass
        except* Exception as errors:  # noqa: BLE001  it must not end the other connections
            _log.error("an HTTP connection failed", exc_info=errors)
        finally:
            self.connections.discard(connection)

    async def _refuse(self, stream: trio.SocketStream) -> None:
        self._refusing += 1
        try:
            with trio.move_on_after(_REFUSAL_S):
                async with stream:
                    await stream.send_all(_REFUSAL)
                    await stream.send_eof()
                    # If the request is not read, closing may reset the connection, and the peer
                    # lose the response.
                    while await stream.receive_some():
                        pass
        except trio.BrokenResourceError:
            pass
        finally:
            self._refusing -= 1
