"""Accepts connections from listening sockets, even when no file descriptor is left.

acpterm keeps a reserve of open descriptors (`runtime.descriptors`). Connections of the user's
clients are always accepted, with a descriptor of the reserve if no other is left. Agents'
connections are refused while the reserve is incomplete: the response to the first request is an
error that says so, and the connection is closed.
"""

import resource
from collections.abc import Awaitable, Callable
from typing import Final

import structlog
import trio

from acpterm.jsonrpc import INTERNAL_ERROR, Peer, RequestReceived, RpcError
from acpterm.runtime.descriptors import NO_ROOM, reserve

_RETRY_S: Final = 0.1
# A refused connection is read until its first request, for at most this many seconds and bytes, to
# answer with an error. While there are `_REFUSALS_MAX` such connections, others are just closed.
_REFUSAL_S: Final = 2.0
_REFUSAL_BYTES: Final = 64 * 1024
_REFUSALS_MAX: Final = 8

_log = structlog.get_logger("acpterm.host")

Serve = Callable[[trio.SocketStream], Awaitable[None]]


class Acceptor:
    """Accepts connections; with `reserved` also while the reserve of descriptors is incomplete."""

    def __init__(self, serve: Serve, connections: trio.Nursery, *, reserved: bool) -> None:
        self._serve: Final = serve
        self._connections: Final = connections
        self._reserved: Final = reserved
        self._refusing = 0

    async def run(self, listener: trio.SocketListener) -> None:
        """Accept connections until the listener is closed."""
        while True:
            try:
                stream = await self._accept(listener)
            except trio.ClosedResourceError:
                return
            if stream is None:
                await trio.sleep(_RETRY_S)
            elif self._reserved or reserve.refill():
                self._connections.start_soon(self._serve, stream)
            elif self._refusing < _REFUSALS_MAX:
                self._connections.start_soon(self._refuse, stream)
            else:
                await stream.aclose()

    async def _accept(self, listener: trio.SocketListener) -> trio.SocketStream | None:
        try:
            return await listener.accept()
        except OSError as error:
            if error.errno not in NO_ROOM:
                raise
        # accept(2) fails even if no connection is queued, so wait until there is a connection.
        await trio.lowlevel.wait_readable(listener.socket)
        with reserve.lent(), trio.move_on_after(_RETRY_S):
            try:
                return await listener.accept()
            except OSError as error:
                _log.warning("no connection can be accepted now", error=error.strerror)
        return None

    async def _refuse(self, stream: trio.SocketStream) -> None:
        limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        error = RpcError(
            INTERNAL_ERROR,
            f"the host has no file descriptor left for another connection: it may open {limit} "
            "files (ulimit -n); close connections or release terminals, and connect again",
        )
        _log.warning("connection refused: no descriptor is left", limit=limit)
        peer = Peer(_REFUSAL_BYTES)
        self._refusing += 1
        try:
            with trio.move_on_after(_REFUSAL_S):
                async with stream:
                    while data := await stream.receive_some(_REFUSAL_BYTES):
                        for event in peer.receive_data(data):
                            if isinstance(event, RequestReceived):
                                await stream.send_all(peer.respond_error(event.id, error))
                                return
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass
        finally:
            self._refusing -= 1
