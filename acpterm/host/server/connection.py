"""One connection: a stream of lines to and from one peer, for as long as both last.

The peer is an agent, or a front end of the person's: who is served says what it may ask.

States: *open*; *closing*, when the peer has said its last (the end of the stream) or the daemon
ends: its terminals are released, which answers whoever waits for them within `CLOSING` seconds,
and what is due is sent within `SENDING` more; *closed*. A peer that is gone altogether (a write
fails) skips what is due: nobody is there to read it.

Tasks, all in this connection's nursery: the reader, which answers at once what can be; one task
per request that has to wait; the writer, by way of the `Outbox`; late work of notifications, which
is not waited for in the end. A handler that raises answers its own request with an error, and
nothing else is touched.
"""

import inspect
from collections.abc import Coroutine
from typing import Any, Final, Protocol

import structlog
import trio

from acpterm.acp import decode
from acpterm.config import Settings
from acpterm.host.server.dispatch import MethodTable
from acpterm.host.server.sender import Sender
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
_CHUNK: Final = 64 * 1024

_log = structlog.get_logger("acpterm.connection")


class ConnectionContext(Protocol):
    """Who is served by a connection. Handlers of methods are given this."""

    @property
    def settings(self) -> Settings:
        """The host's."""

    @property
    def sender(self) -> Sender:
        """Sends to the peer besides answers."""

    def drain(self) -> None:
        """Store what has changed: an answer that tells of it is about to be sent."""

    def close(self) -> None:
        """Learn that the peer is gone. Can be repeated."""


class _NoContext:
    """Served by a connection that was abandoned: its handlers may still answer, unheard."""

    def __init__(self, settings: Settings) -> None:
        self.settings: Final = settings
        self.sender: Final = Sender()

    def drain(self) -> None:
        """Do nothing: nobody reads the answer."""

    def close(self) -> None:
        """Do nothing."""


class Connection:
    """The host's end of one connection. `high`: bytes from which on its outbox is full.

    What was put into `store` before an answer has left this process when the answer does.

    Nothing that a connection refers to refers to it, so that what it holds is freed with it.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        served: ConnectionContext,
        methods: MethodTable,
        name: str,
        *,
        high: int = HIGH_WATER_BYTES,
        store: Store | None = None,
    ) -> None:
        self._stream = stream
        self._context = served
        self._methods = methods
        self._peer = Peer(served.settings.max_message_bytes)
        self._queue = SendQueue(stream, high, store)
        self._serve(served)
        self.received = 0
        """Bytes that came from the peer."""
        self._reading = trio.CancelScope()
        self._scopes: dict[Id, trio.CancelScope] = {}
        self._tasks = 0
        self._log = _log.bind(connection=name)

    def close(self) -> None:
        """Have the connection close, as if the agent had said its last. Can be repeated."""
        self._reading.cancel()

    def serve_as(self, served: ConnectionContext, name: str) -> None:
        """Serve `served` from now on, by the name of its connection; the one before is not left."""
        self._serve(served)
        self._log = _log.bind(connection=name)
        self._log.info("connection resumed")

    def abandon(self) -> None:
        """Close without leaving the one that is served: another connection serves it now."""
        self._serve(_NoContext(self._context.settings))
        self.close()

    def _serve(self, served: ConnectionContext) -> None:
        self._context = served
        served.sender.connect(self._queue)

    async def serve(self) -> None:
        """Serve the peer until it is gone or `close` is called. Closes the stream.

        Cancelled, it releases the terminals and sends nothing more.
        """
        self._log.info("connection opened")
        try:
            async with self._stream, trio.open_nursery() as nursery:
                nursery.start_soon(self._write, nursery.cancel_scope)
                with trio.CancelScope() as answering:
                    async with trio.open_nursery() as handlers:
                        with self._reading:
                            await self._read(nursery, handlers)
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

    async def _read(self, nursery: trio.Nursery, handlers: trio.Nursery) -> None:
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
                    # Between two events others have their turn, as before the next data.
                    await self._queue.drain()
                self._take(event, nursery, handlers)
            self._context.drain()
            if self._queue.is_full:
                await self._queue.drain()

    def _take(self, event: Event, nursery: trio.Nursery, handlers: trio.Nursery) -> None:
        match event:
            case RequestReceived():
                self._request(event, handlers)
            case NotificationReceived():
                self._notification(event, nursery)
            case CancelReceived(request):
                if scope := self._scopes.get(request):
                    scope.cancel()
            case InvalidReceived(reply, error):
                self._log.warning("message refused", code=error.code)
                if reply is not None:
                    self._queue.put(reply)
            case _:
                self._log.warning("an answer to nothing that was asked")

    def _request(self, request: RequestReceived, handlers: trio.Nursery) -> None:
        method = self._methods.requests.get(request.method)
        if method is None:
            self._fail(request, self._unknown(request.method))
            return
        is_full = self._tasks >= PENDING_MAX
        if is_full and method.acts_first:
            self._fail(request, _too_many())
            return
        try:
            params = decode(request.params, method.params)
            more = (request.id,) if method.takes_id else ()
            result = method.handle(self._context, params, *more)
        except Exception as error:  # noqa: BLE001  whatever a handler does costs its own request
            self._fail(request, error)
            return
        if not inspect.iscoroutine(result):
            self._respond(request, result)
        elif not is_full:
            self._tasks += 1
            # From now on it can be cancelled, whether its task has begun or not.
            scope = trio.CancelScope()
            if request.id is not None:
                self._scopes[request.id] = scope
            handlers.start_soon(self._finish, request, result, scope)
        else:
            result.close()
            if method.result_at_once is not None:
                self._respond(request, method.result_at_once)
            else:
                self._fail(request, _too_many())

    async def _finish(
        self, request: RequestReceived, work: Coroutine[Any, Any, Any], scope: trio.CancelScope
    ) -> None:
        try:
            with scope:
                self._respond(request, await work)
            if scope.cancelled_caught:
                self._fail(request, RpcError(REQUEST_CANCELLED, "cancelled, as was asked"))
        except Exception as error:  # noqa: BLE001  as above
            self._fail(request, error)
        finally:
            self._tasks -= 1
            self._scopes.pop(request.id, None)

    def _respond(self, request: RequestReceived, result: object) -> None:
        self._context.drain()
        self._queue.put(self._peer.respond(request.id, result))

    def _fail(self, request: RequestReceived, error: Exception) -> None:
        if not isinstance(error, RpcError):
            self._log.error("a handler failed", method=request.method, exc_info=error)
            what = f"{request.method}: internal error: {type(error).__name__}: {error}"
            error = RpcError(INTERNAL_ERROR, what)
        self._context.drain()
        self._queue.put(self._peer.respond_error(request.id, error))

    def _notification(self, event: NotificationReceived, nursery: trio.Nursery) -> None:
        method = self._methods.notifications.get(event.method)
        if method is None:
            return
        try:
            work = method.handle(self._context, decode(event.params, method.params))
        except Exception as error:  # noqa: BLE001  nobody can be answered
            why = type(error).__name__
            self._log.warning("notification ignored", method=event.method, error=why)
            return
        if inspect.iscoroutine(work):
            nursery.start_soon(_await, work)

    def _unknown(self, method: str) -> RpcError:
        known = ", ".join(self._methods.requests)
        return RpcError(
            METHOD_NOT_FOUND, f"there is no method {quote(method)} here; there are {known}"
        )


def _too_many() -> RpcError:
    return RpcError(INTERNAL_ERROR, f"{PENDING_MAX} requests are pending: wait for some of them")


async def _await(work: Coroutine[Any, Any, None]) -> None:
    await work
