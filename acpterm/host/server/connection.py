"""One connection: receives a peer's messages, calls their handlers, and sends the responses.

The peer is an agent or a client of the user. The connection gets the peer's state (the context:
`agent.connection.AgentConnection` or `user.connection.UserConnection`) and its dispatch table.

States:

- *open*.
- *closing*: the stream has ended, the daemon is ending, or a write has failed. The context is
  closed; this releases the agent's terminals, so the requests that wait for them get responses. The
  connection waits up to `CLOSE_TIMEOUT_S` seconds for these responses, and then up to
  `SEND_TIMEOUT_S` seconds until all queued responses are sent. If a write fails, the peer no longer
  reads: the context is still closed, but the connection does not wait.
- *closed*.

Tasks, all in this connection's nursery: the reader, which handles messages and responds at once
where possible; one task for each request that has to wait; and the writer, which runs the
`SendQueue`. A handler that raises fails its own request and nothing else.
"""

import inspect
from collections.abc import Coroutine
from typing import Any, Final

import structlog
import trio

from acpterm.acp.lenient import decode
from acpterm.config import Settings
from acpterm.host.server.dispatch import ConnectionContext, MethodTable, Sender
from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    METHOD_NOT_FOUND,
    REQUEST_CANCELLED,
    CancelReceived,
    Event,
    Id,
    InvalidReceived,
    NotificationReceived,
    Peer,
    RequestReceived,
    RpcError,
    quote,
)
from acpterm.runtime.send_queue import (
    CLOSE_TIMEOUT_S,
    HIGH_WATER_BYTES,
    SEND_TIMEOUT_S,
    SendQueue,
    Store,
)

PENDING_MAX: Final = 4096
# A pending request counts once more for every `_PENDING_BYTES` bytes of its params, since it may
# retain them.
_PENDING_BYTES: Final = 16 * 1024
_CHUNK: Final = 64 * 1024

_log = structlog.get_logger("acpterm.connection")


class _NoContext:
    """The context of an abandoned connection, whose own one another connection serves now."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Final = settings
        self.sender: Final = Sender()

    def flush_state(self) -> None:
        """Do nothing: no response to the peer, which is gone, has to wait for stored state."""

    def close(self) -> None:
        """Do nothing."""


class Connection:
    """The host's end of one connection."""

    # No object that a connection refers to may refer back to it: without reference cycles the
    # connection's memory is freed at once, not by the next garbage collection.

    def __init__(
        self,
        stream: trio.abc.Stream,
        context: ConnectionContext,
        methods: MethodTable,
        name: str,
        *,
        high: int = HIGH_WATER_BYTES,
        store: Store | None = None,
    ) -> None:
        self._stream = stream
        self._context = context
        self._methods = methods
        self._peer = Peer(context.settings.max_message_bytes)
        self._queue = SendQueue(stream, high, store)
        self._set_context(context)
        self.received = 0
        """The number of bytes received from the peer."""
        self._reading = trio.CancelScope()
        self._scopes: dict[Id, trio.CancelScope] = {}
        self._pending = 0
        self._log = _log.bind(connection=name)

    def close(self) -> None:
        """Begin to close the connection, as if the peer had ended the stream. Idempotent."""
        self._reading.cancel()

    def serve_as(self, context: ConnectionContext, name: str) -> None:
        """Resume an agent's earlier connection: call handlers with its `context` from now on."""
        self._set_context(context)
        self._log = _log.bind(connection=name)
        self._log.info("connection resumed")

    def abandon(self) -> None:
        """Begin to close the connection. Its context stays open, for another connection."""
        self._set_context(_NoContext(self._context.settings))
        self.close()

    def _set_context(self, context: ConnectionContext) -> None:
        self._context = context
        context.sender.connect(self._queue)

    async def serve(self) -> None:
        """Serve the peer until it disconnects or `close` is called, then close the stream."""
        self._log.info("connection opened")
        try:
            async with self._stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._write, nursery.cancel_scope)
                with trio.CancelScope() as answering:
                    async with trio.open_nursery() as handlers:
                        with self._reading:
                            await self._read(handlers)
                        self._context.close()
                        answering.deadline = trio.current_time() + CLOSE_TIMEOUT_S
                self._queue.close()
                nursery.cancel_scope.deadline = trio.current_time() + SEND_TIMEOUT_S
        finally:
            self._context.close()
            self._context.sender.disconnect(self._queue)
            self._log.info("connection closed")

    async def _write(self, connection: trio.CancelScope) -> None:
        try:
            await self._queue.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            self._log.info("the peer no longer reads its answers")
        connection.cancel()

    async def _read(self, handlers: trio.Nursery) -> None:
        while True:
            try:
                data = await self._stream.receive_some(_CHUNK)
            except trio.BrokenResourceError:
                return
            if not data:
                return
            self.received += len(data)
            for number, event in enumerate(self._peer.receive_data(data)):
                if number:
                    # Let other tasks run between two events, as they do between two reads.
                    await self._queue.drain()
                self._take(event, handlers)
            self._context.flush_state()
            if self._queue.is_full:
                await self._queue.drain()

    def _take(self, event: Event, handlers: trio.Nursery) -> None:
        match event:
            case RequestReceived():
                self._request(event, handlers)
            case NotificationReceived():
                self._notification(event)
            case CancelReceived(request):
                if scope := self._scopes.get(request):
                    scope.cancel()
            case InvalidReceived(reply, error):
                self._log.warning("message refused", code=error.code)
                if reply is not None:
                    self._queue.put(reply)
            case _:
                self._log.warning("unexpected response")

    def _request(self, request: RequestReceived, handlers: trio.Nursery) -> None:
        method = self._methods.requests.get(request.method)
        if method is None:
            self._fail(request, self._unknown(request.method))
            return
        is_full = self._pending >= PENDING_MAX
        if is_full and method.acts_first:
            self._fail(request, _too_many())
            return
        try:
            params = decode(request.params, method.params)
            more = (request.id,) if method.takes_id else ()
            result = method.handle(self._context, params, *more)
            if not inspect.iscoroutine(result):
                self._respond(request, result)
                return
        except Exception as error:  # noqa: BLE001  a bug in a handler must fail only its own request
            self._fail(request, error)
            return
        if not is_full:
            weight = 1 + memoryview(request.params or b"").nbytes // _PENDING_BYTES
            self._pending += weight
            # The request can be cancelled from now on, even before its task starts.
            scope = trio.CancelScope()
            if request.id is not None:
                self._scopes[request.id] = scope
            # Without the params, which would otherwise stay in memory until the response.
            request = RequestReceived(request.id, request.method)
            handlers.start_soon(self._finish, request, result, scope, weight)
        else:
            result.close()
            if method.result_at_once is not None:
                self._respond(request, method.result_at_once)
            else:
                self._fail(request, _too_many())

    async def _finish(
        self,
        request: RequestReceived,
        work: Coroutine[Any, Any, Any],
        scope: trio.CancelScope,
        weight: int,
    ) -> None:
        try:
            with scope:
                self._respond(request, await work)
            if scope.cancelled_caught:
                self._fail(request, RpcError(REQUEST_CANCELLED, "cancelled, as was asked"))
        except Exception as error:  # noqa: BLE001  as above
            self._fail(request, error)
        finally:
            self._pending -= weight
            self._scopes.pop(request.id, None)

    def _respond(self, request: RequestReceived, result: object) -> None:
        self._context.flush_state()
        self._queue.put(self._peer.respond(request.id, result))

    def _fail(self, request: RequestReceived, error: Exception) -> None:
        if isinstance(error, MemoryError):
            # Without its traceback, whose frames may hold what was too large.
            error = RpcError(INTERNAL_ERROR, f"{request.method}: there is no memory for it")
            self._log.warning("no memory for a request", method=request.method)
        elif not isinstance(error, RpcError):
            self._log.error("a handler failed", method=request.method, exc_info=error)
            what = f"{request.method}: internal error: {type(error).__name__}: {error}"
            error = RpcError(INTERNAL_ERROR, what)
        self._context.flush_state()
        self._queue.put(self._peer.respond_error(request.id, error))

    def _notification(self, event: NotificationReceived) -> None:
        method = self._methods.notifications.get(event.method)
        if method is None:
            return
        try:
            method.handle(self._context, decode(event.params, method.params))
        except Exception as error:  # noqa: BLE001  a notification has no response
            why = type(error).__name__
            self._log.warning("notification ignored", method=event.method, error=why)

    def _unknown(self, method: str) -> RpcError:
        known = ", ".join(self._methods.requests)
        return RpcError(
            METHOD_NOT_FOUND, f"there is no method {quote(method)} here; there are {known}"
        )


def _too_many() -> RpcError:
    return RpcError(INTERNAL_ERROR, f"{PENDING_MAX} requests are pending: wait for some of them")
