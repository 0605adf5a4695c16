"""One TCP connection of the HTTP server: hypercorn's HTTP/1.1 and WebSocket protocols on trio.

hypercorn's own server for trio is not used, for these reasons:

- An error in one connection would end all connections.
- It sends in a shielded scope, so a peer that does not read could not be disconnected.
- It accepts HTTP/2 without TLS.
- It decompresses WebSocket messages, so that 64 KiB can become 64 MiB.
- It sends pings, but does not check that a response comes.

States:

- *idle*: no request is being handled. After `IDLE_TIMEOUT_S` the connection is closed; this also
  limits the time in which a request's headers must arrive.
- *busy*: a request is being handled, without a time limit.
- *WebSocket*: the peer must send something every `SILENCE_TIMEOUT_S`; responses to pings suffice.
- *closing*: the last response was sent. Data that the peer still sends is read and dropped, for
  `LINGER_S`: otherwise the system could reset the connection, and the peer lose the response.

Tasks: the reader, and one for each request, which runs the application (`request_task`).
"""

import dataclasses
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias, cast

import h11
import trio
from hypercorn.config import Config
from hypercorn.events import Closed, Event, RawData, Updated
from hypercorn.protocol.events import Response
from hypercorn.protocol.h11 import H11Protocol
from hypercorn.protocol.ws_stream import WSStream
from hypercorn.trio.worker_context import WorkerContext
from hypercorn.typing import ConnectionState

from acpterm.web.pages import HEADERS
from acpterm.web.request_task import App, Mailbox, run_app

IDLE_TIMEOUT_S: Final = 10.0
PING_INTERVAL_S: Final = 20.0
SILENCE_TIMEOUT_S: Final = 60.0
SEND_TIMEOUT_S: Final = 60.0
"""How long the peer may take to read `_CHUNK` bytes."""
LINGER_S: Final = 1.0
_HANDSHAKE_TIMEOUT_S: Final = 10.0
_LINGER_BYTES: Final = 1024 * 1024
HEADERS_MAX: Final = 16 * 1024
"""How many bytes the headers of a request may have, with its first line."""
_CHUNK: Final = 64 * 1024
_PAGE_HEADERS: Final = (
    *((name.lower().encode(), value.encode()) for name, value in HEADERS.items()),
    (b"cache-control", b"no-store"),
)

Stream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]


def server_config(max_message_bytes: int) -> Config:
    """Return hypercorn's configuration: no logs, no header `Server`, and pings for WebSockets.

    `max_message_bytes` is the size of the largest WebSocket message that is accepted.
    """
    config = Config()
    config.accesslog = config.errorlog = None
    config.include_server_header = False
    config.websocket_max_message_size = max_message_bytes
    config.websocket_ping_interval = PING_INTERVAL_S
    return config


class HttpConnection:
    """Serves the requests of one TCP connection, `stream`, with the ASGI application `app`."""

    def __init__(self, app: App, config: Config, stream: Stream) -> None:
        self._app: Final = app
        self._config: Final = config
        self._stream: Final = stream
        self._sending: Final = trio.Lock()
        self._reading = trio.CancelScope()
        self._idle_until = 0.0
        self._is_busy = False
        self._is_broken = False
        self._is_closing = False
        self.is_admitted = False
        """Whether a request on this connection had a valid login or token."""

    def admit(self) -> None:
        """Record that a request on this connection had a valid login or token.

        From now on the connection does not count for `server.STRANGERS_MAX`.
        """
        self.is_admitted = True

    def limit_messages(self, max_bytes: int) -> None:
        """Accept only WebSocket messages of at most `max_bytes` from now on."""
        if isinstance(self._protocol.stream, WSStream):
            self._protocol.stream.buffer.max_length = max_bytes

    async def serve(self) -> None:
        """Serve requests until the connection is closed. If cancelled, close it at once."""
        try:
            if isinstance(self._stream, trio.SSLStream):
                with trio.move_on_after(_HANDSHAKE_TIMEOUT_S) as handshake:
                    await self._stream.do_handshake()
                if handshake.cancelled_caught:
                    return
            async with trio.open_nursery() as helpers:
                async with trio.open_nursery() as requests:
                    self._protocol = self._make_protocol(requests, helpers)
                    self._set_idle()
                    await self._read()
                # End the task that sends pings.
                helpers.cancel_scope.cancel()
        finally:
            await trio.aclose_forcefully(self._stream)

    def _make_protocol(self, requests: trio.Nursery, helpers: trio.Nursery) -> "_Http1":
        stream = self._stream
        is_tls = isinstance(stream, trio.SSLStream)
        transport = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        names = transport.socket.getpeername(), transport.socket.getsockname()
        client, server = ((str(name[0]), int(name[1])) for name in names)
        return _Http1(
            # hypercorn's type has more arguments than the three with which `_Requests` calls it.
            cast("Any", self._app),
            self._config,
            WorkerContext(None),
            cast("Any", _Requests(requests, helpers)),
            ConnectionState({"connection": self}),
            is_tls,
            client,
            server,
            self._send,
        )

    def _set_idle(self) -> None:
        self._is_busy = False
        self._idle_until = trio.current_time() + IDLE_TIMEOUT_S
        self._reading.deadline = self._idle_until

    @property
    def _deadline(self) -> float:
        """The time on trio's clock by which the peer must send something."""
        if isinstance(self._protocol.stream, WSStream):
            return trio.current_time() + SILENCE_TIMEOUT_S
        return math.inf if self._is_busy else self._idle_until

    async def _read(self) -> None:
        while not self._is_closing:
            data: bytes | bytearray = b""
            with trio.CancelScope(deadline=self._deadline) as self._reading:
                try:
                    data = await self._stream.receive_some(_CHUNK)
                except (trio.BrokenResourceError, trio.ClosedResourceError):
                    break
            if not data or self._is_closing:
                break
            await self._protocol.handle(RawData(bytes(data)))
        await self._protocol.handle(Closed())
        if self._is_closing and not self._is_broken:
            await self._linger()

    async def _linger(self) -> None:
        with trio.move_on_after(LINGER_S):
            try:
                await self._end_sending()
                received = 0
                while received < _LINGER_BYTES:
                    data = await self._stream.receive_some(_CHUNK)
                    if not data:
                        return
                    received += len(data)
            except (trio.BrokenResourceError, trio.ClosedResourceError):
                pass

    async def _end_sending(self) -> None:
        if isinstance(self._stream, trio.SocketStream):
            async with self._sending:
                await self._stream.send_eof()

    async def _send(self, event: Event) -> None:
        """Do what hypercorn's protocol requests by `event`: send, close, or become idle or busy."""
        if isinstance(event, RawData):
            if not await self._send_data(event.data):
                await self._protocol.handle(Closed())
                self._reading.cancel()
        elif isinstance(event, Closed):
            self._is_closing = True
            self._reading.cancel()
            await self._protocol.handle(Closed())
        elif isinstance(event, Updated):
            if event.idle:
                self._set_idle()
            else:
                self._is_busy = True

    async def _send_data(self, data: bytes) -> bool:
        """Send `data`; return False if the peer is gone, or takes longer than `SEND_TIMEOUT_S`."""
        view = memoryview(data)
        async with self._sending:
            if self._is_broken:
                return False
            # Set in case of cancellation: a part may have been sent, and nothing may follow it.
            self._is_broken = True
            try:
                for start in range(0, len(view), _CHUNK):
                    with trio.fail_after(SEND_TIMEOUT_S):
                        await self._stream.send_all(view[start : start + _CHUNK])
            except (trio.BrokenResourceError, trio.ClosedResourceError, trio.TooSlowError):
                return False
            self._is_broken = False
            return True


class _Http1(H11Protocol):
    """hypercorn's HTTP/1.1 protocol, without HTTP/2 and without compression of WebSockets.

    Headers or a WebSocket message that are too large end the connection. hypercorn itself responds
    to invalid requests; these responses get the usual headers, too (`pages.HEADERS`).
    """

    async def stream_send(self, event: Any) -> None:
        if isinstance(event, Response):
            headers = [*event.headers, *_missing(event.headers)]
            event = dataclasses.replace(event, headers=headers)
        await super().stream_send(event)

    async def _send_error_response(self, status_code: int) -> None:
        headers = [(b"content-length", b"0"), (b"connection", b"close")]
        headers += [*_missing(headers), *self.config.response_headers("h11")]
        await self._send_h11_event(h11.Response(status_code=status_code, headers=headers))
        await self._send_h11_event(h11.EndOfMessage())

    async def handle(self, event: Event) -> None:
        await super().handle(event)
        stream = self.stream
        if isinstance(stream, WSStream) and stream.buffer.length > stream.buffer.max_length:
            # hypercorn has sent the reason, but would buffer messages until the peer closes.
            stream.buffer.clear()
            await self.send(Closed())

    async def _create_stream(self, request: h11.Request) -> None:
        # h11 limits only headers that arrive in several pieces.
        size = (
            len(request.method)
            + len(request.target)
            + sum(len(name) + len(value) + len(b": \r\n") for name, value in request.headers)
        )
        if size >= HEADERS_MAX:
            await self._send_error_response(431)
            await self.send(Closed())
            return
        headers = [header for header in request.headers if header[0] != b"sec-websocket-extensions"]
        await super()._create_stream(
            h11.Request(
                method=request.method,
                target=request.target,
                headers=headers,
                http_version=request.http_version,
            )
        )

    async def _check_protocol(self, event: h11.Request) -> None:
        """Do nothing: hypercorn's method would switch to HTTP/2 if the client requests it."""


def _missing(headers: Iterable[tuple[bytes, bytes]]) -> list[tuple[bytes, bytes]]:
    """Return the headers that every response must have, except those in `headers`.

    `headers` are the headers that the response has already.
    """
    found = {name.lower() for name, _ in headers}
    return [one for one in _PAGE_HEADERS if one[0] not in found]


class _Requests:
    """hypercorn's `TaskGroup`: runs requests in the nursery `requests`, all else in `helpers`."""

    def __init__(self, requests: trio.Nursery, helpers: trio.Nursery) -> None:
        self._requests: Final = requests
        self._helpers: Final = helpers

    async def spawn_app(
        self, app: App, config: Config, scope: Any, send: Callable[[Any], Awaitable[None]]
    ) -> Callable[[Any], Awaitable[None]]:
        """Start the application for the request that `scope` describes, in a task of its own.

        The task passes the application's messages to `send`. Return the function that passes a
        message from the peer to the application.
        """
        del config
        mailbox = Mailbox()
        self._requests.start_soon(run_app, app, scope, mailbox, send)
        return mailbox.put

    def spawn(self, work: Callable[..., Awaitable[object]], *arguments: Any) -> None:
        """Start a task, such as that for pings, which is cancelled when the connection ends."""
        self._helpers.start_soon(work, *arguments)
