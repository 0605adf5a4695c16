"""Our end of a JSON-RPC stream: sends requests and dispatches the messages that the peer sends.

The peer is the host, which sends only responses and notifications; or it is the agent of `acpterm
prompt` or an MCP server (`session_sockets`), which send requests too.

States: *open*; *closed*, once the stream has ended or broken, `run` was cancelled, or `close` was
called. In *closed*, every pending and every later request fails, usually with a `LostError`.
Messages that are queued before `run` has started are sent when it starts.

An endpoint with a `Recovery` has a third state, *recovering*, once the stream has ended or broken:
new requests and notifications are queued, and `Recovery.reconnect` is awaited. It returns another
stream, on which the unanswered messages are sent again (`unanswered`). If `Recovery.reconnect`
raises `LostError`, the endpoint is closed.

The callbacks for responses, requests and notifications are called in the order in which the
messages arrive. Callbacks must not block.

Longer than 300 lines because each of sending, dispatch and recovery changes the pending requests
and the send queue: in separate files, these would no longer be private to one class.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, TypeAlias

import trio
from msgspec import UNSET, Raw, UnsetType

from acpterm.jsonrpc import (
    INTERNAL_ERROR,
    MESSAGE_BYTES_MAX,
    METHOD_NOT_FOUND,
    CancelReceived,
    ErrorReceived,
    Event,
    Id,
    InvalidReceived,
    NotificationReceived,
    Peer,
    RequestReceived,
    ResponseReceived,
    RpcError,
    quote,
)
from acpterm.link.errors import LostError
from acpterm.link.unanswered import Unanswered
from acpterm.runtime.send_queue import SendQueue

_CHUNK: Final = 64 * 1024
HIGH_WATER_BYTES: Final = 256 * 1024
"""The size of a send queue, in bytes, above which `drain` waits until the peer has read more."""

Response: TypeAlias = Raw | RpcError
OnResponse: TypeAlias = Callable[[Response], None]


class Recovery(Protocol):
    """Replaces the stream of an endpoint after the stream has ended or broken."""

    @property
    def unanswered(self) -> Unanswered:
        """The record of the messages that the endpoint sends again on the next stream."""

    async def reconnect(self) -> tuple[trio.abc.Stream, bytes]:
        """Return another stream, and the bytes that were already received on it.

        Raises `LostError` if there is no peer to reconnect to.
        """


class Endpoint:
    """Our end of the JSON-RPC stream `stream`: sends requests, and dispatches what is received.

    `name` is what error messages call the peer. `max_line` is the maximum length of a received
    line, in bytes. If `lenient`, lone surrogates in received lines are replaced instead of being an
    error. `recovery` replaces a stream that has ended or broken; if it is None, the endpoint is
    closed instead.

    - `on_request` is called with each request. The response is sent with `respond` or `fail`, in
      the callback or later. By default every request is refused.
    - `on_notification` is called with each notification.
    - `on_cancel` is called with the id of each pending request that the peer cancels.
    - `on_invalid` is called for each line that is not a message; no response is sent. Without
      `on_invalid` the first such line closes the endpoint, since it may have been an awaited
      response.
    - `exit_reason` is awaited when the stream has ended. It returns why the stream has ended, which
      becomes the error message of the pending requests.
    - `before_event` is awaited before each message is dispatched.
    - `throttle` is awaited after each message; the next one is dispatched once it returns.
    """

    def __init__(
        self,
        stream: trio.abc.Stream,
        name: str,
        max_line: int = MESSAGE_BYTES_MAX,
        *,
        lenient: bool = False,
        recovery: Recovery | None = None,
        on_request: Callable[[RequestReceived], None] | None = None,
        on_notification: Callable[[NotificationReceived], None] | None = None,
        on_cancel: Callable[[Id], None] | None = None,
        on_invalid: Callable[[RpcError], None] | None = None,
        exit_reason: Callable[[], Awaitable[str]] | None = None,
        before_event: Callable[[Event], Awaitable[None]] | None = None,
        throttle: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint,
    ) -> None:
        self._stream = stream
        self._recovery = recovery
        self._unanswered = None if recovery is None else recovery.unanswered
        self.name: Final = name
        self._peer = Peer(max_line, lenient=lenient)
        self._queue = SendQueue(stream, HIGH_WATER_BYTES)
        self._pending: dict[int, OnResponse] = {}
        self._closed: RpcError | None = None
        self._on_request = on_request or self._refuse
        self._on_notification = on_notification
        self._on_cancel = on_cancel
        self._on_invalid = on_invalid
        self._exit_reason = exit_reason
        self._before_event = before_event
        self.throttle = throttle
        """The parameter `throttle`. It may be replaced later: the host's endpoint waits for the
        queue of messages to the agent, and that queue is created after the endpoint."""

    async def run(self, received: bytes = b"") -> None:
        """Send and receive until the stream ends or breaks; then close the stream and the endpoint.

        With a `Recovery`, continue on another stream instead, until the recovery fails. If this
        call is cancelled, close the stream and the endpoint too. `received` are bytes that were
        already received on the stream.
        """
        try:
            while self._closed is None:
                await self._serve(received)
                if self._recovery is None:
                    break
                if self._closed is None:
                    received = await self._recover(self._recovery)
        finally:
            self.close(LostError(f"{self.name} is gone"))

    async def _serve(self, received: bytes) -> None:
        async with self._stream, trio.open_nursery() as nursery:
            nursery.start_soon(self._write, nursery.cancel_scope)
            await self._read(received)
            if self._exit_reason is not None:
                self.close(LostError(await self._exit_reason()))
            nursery.cancel_scope.cancel()

    async def _recover(self, recovery: Recovery) -> bytes:
        """Reconnect, and queue the messages to send again.

        Return the bytes that were already received on the new stream.
        """
        self._peer.close()  # drops an incomplete line
        lost = recovery.unanswered.lost()
        self._queue.restart(lost.lines)
        try:
            self._stream, received = await recovery.reconnect()
        except LostError as error:
            self.close(error)
            return b""
        self._queue.connect(self._stream)
        for id_, failure in lost.errors:
            if isinstance(id_, int):
                self._peer.give_up(id_)
                self._resolve(id_, failure)
        return received

    def call(self, method: str, params: Any, on_response: OnResponse) -> int | None:
        """Queue a request; `on_response` is called later with the result or error. Never blocks.

        Return the request's id, for `cancel`. If the endpoint is closed, call `on_response` with
        the error at once, and return None.
        """
        if self._closed is not None:
            on_response(self._closed)
            return None
        id_, line = self._peer.request(method, params)
        self._pending[id_] = on_response
        if self._unanswered is not None:
            self._unanswered.request(id_, method, line)
        self._queue.put(line)
        return id_

    async def request(self, method: str, params: Any) -> Raw:
        """Send a request, wait for its response and return the result.

        Raises `RpcError` if the response is an error, or if the endpoint is closed or becomes
        closed (a `LostError`, if the peer is gone). If this is cancelled, `$/cancel_request` is
        sent and the response is ignored.
        """
        responses: list[Response] = []
        received = trio.Event()

        def on_response(response: Response) -> None:
            responses.append(response)
            received.set()

        id_ = self.call(method, params, on_response)
        try:
            await received.wait()
        except trio.Cancelled:
            if id_ is not None:
                self.cancel(id_)
            raise
        if isinstance(responses[0], RpcError):
            raise responses[0]
        return responses[0]

    def notify(self, method: str, params: Any) -> None:
        """Queue a notification; drop it if the endpoint is closed. Never blocks."""
        if self._closed is None:
            line = self._peer.notify(method, params)
            if self._unanswered is not None:
                self._unanswered.notification(method, line)
            self._queue.put(line)

    def cancel(self, id_: int) -> None:
        """Queue a `$/cancel_request` for our request `id_`, which still gets a response.

        Do nothing if the request is not pending.
        """
        if self._closed is None and id_ in self._pending:
            line = self._peer.cancel(id_)
            if self._unanswered is not None:
                self._unanswered.cancel(id_, line)
            self._queue.put(line)

    def respond(self, id_: Id, result: Any) -> None:
        """Respond to the peer's request `id_` with `result`."""
        if self._closed is None:
            self._queue.put(self._peer.respond(id_, result))

    def fail(self, id_: Id, error: RpcError) -> None:
        """Respond to the peer's request `id_` with `error`."""
        if self._closed is None:
            self._queue.put(self._peer.respond_error(id_, error))

    def respond_raw(self, id_: Id, response: Response) -> None:
        """Respond to the peer's request `id_` with `response`, which is a result or an error."""
        if isinstance(response, RpcError):
            self.fail(id_, response)
        else:
            self.respond(id_, response)

    @property
    def is_full(self) -> bool:
        """Whether the send queue is above `HIGH_WATER_BYTES`: the peer reads too slowly."""
        return self._queue.is_full

    async def drain(self) -> None:
        """Wait until the send queue has fallen to `HIGH_WATER_BYTES`."""
        await self._queue.drain()

    def close(self, why: RpcError) -> None:
        """Close the endpoint: fail every pending and every later request with `why`.

        If it is closed already, the first reason remains.
        """
        if self._closed is None:
            self._closed = why
        pending, self._pending = self._pending, {}
        for on_response in pending.values():
            on_response(self._closed)

    async def _write(self, scope: trio.CancelScope) -> None:
        try:
            await self._queue.run()
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            # The peer may have sent more before it stopped reading: keep receiving.
            return
        scope.cancel()

    async def _read(self, data: bytes | bytearray) -> None:
        while True:
            for event in self._peer.receive_data(data):
                if self._before_event is not None:
                    await self._before_event(event)
                self._dispatch(event)
                if self._closed is not None:
                    return
                await self.throttle()
            if data:
                await self._queue.drain()
            try:
                data = await self._stream.receive_some(_CHUNK)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                return
            if not data:
                return

    def _dispatch(self, event: Event) -> None:
        match event:
            case ResponseReceived(id_, result):
                self._resolve(id_, result)
            case ErrorReceived(id_, error):
                data = UNSET if isinstance(error.data, UnsetType) else error.data
                self._resolve(id_, RpcError(error.code, error.message, data))
            case RequestReceived():
                self._on_request(event)
            case NotificationReceived():
                if self._on_notification is not None:
                    self._on_notification(event)
            case CancelReceived(id_):
                if self._on_cancel is not None:
                    self._on_cancel(id_)
            case InvalidReceived(_, invalid):
                if self._on_invalid is not None:
                    self._on_invalid(invalid)
                else:
                    message = f"{self.name} sent an invalid message: {invalid.message}"
                    self.close(RpcError(INTERNAL_ERROR, message))
            case _:
                pass  # a response without a pending request, such as a second one

    def _refuse(self, request: RequestReceived) -> None:
        message = f"there is no method {quote(request.method)} here"
        self.fail(request.id, RpcError(METHOD_NOT_FOUND, message))

    def _resolve(self, id_: int, response: Response) -> None:
        if self._unanswered is not None:
            self._unanswered.answered(id_)
        if on_response := self._pending.pop(id_, None):
            on_response(response)
