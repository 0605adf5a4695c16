"""One TCP connection of the HTTP server: serves an ASGI application with h11 and wsproto.

States:

- *idle*: no request is being handled. After `IDLE_TIMEOUT_S` the connection is closed; this also
  limits the time in which a request's headers must arrive.
- *busy*: the application handles a request, without a time limit.
- *WebSocket*: the peer must send something every `SILENCE_TIMEOUT_S`; responses to pings suffice.
- *closing*: the last response was sent. Data that the peer still sends is read and dropped, for
  `LINGER_S`: otherwise the system could reset the connection, and the peer lose the response.

During a request, data is read only when the application calls `receive`: a peer that sends faster
has to wait. If the peer disconnects, the application receives ASGI's disconnect message, its calls
of `send` raise an `OSError`, and it ends by itself.
"""

import contextlib
import math
from collections.abc import Awaitable, Callable, Iterable
from email.utils import formatdate
from io import BytesIO, StringIO
from typing import Any, Final, TypeAlias
from urllib.parse import unquote

import h11
import structlog
import trio
from starlette.requests import ClientDisconnect
from starlette.websockets import WebSocketDisconnect
from wsproto import events
from wsproto.connection import Connection, ConnectionState, ConnectionType
from wsproto.frame_protocol import CloseReason
from wsproto.utilities import generate_accept_token

from acpterm.web.pages import HEADERS

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
_PAGE_HEADERS: Final = [(name.lower().encode(), value.encode()) for name, value in HEADERS.items()]

App: TypeAlias = Callable[..., Awaitable[None]]
"""An ASGI application."""
_GONE: Final = (trio.BrokenResourceError, trio.ClosedResourceError)
Stream: TypeAlias = trio.SocketStream | trio.SSLStream[trio.SocketStream]

_log = structlog.get_logger("acpterm.web")


class _PeerGoneError(OSError):
    """The application sends to a peer that has disconnected. ASGI requires an `OSError`."""


class HttpConnection:
    """Serves the requests of one TCP connection."""

    def __init__(self, app: App, stream: Stream, max_message_bytes: int) -> None:
        self._app: Final = app
        self._stream: Final = stream
        self.http: Final = h11.Connection(h11.SERVER, max_incomplete_event_size=HEADERS_MAX)
        self._sending: Final = trio.Lock()
        self._reading = trio.CancelScope()
        self.is_broken = False
        """Whether nothing can be sent any more."""
        self.max_message_bytes = max_message_bytes
        """The size of the largest WebSocket message that is accepted."""
        self.is_admitted = False
        """Whether a request had a valid login or token, so that the peer is no stranger."""

    async def serve(self) -> None:
        """Serve requests until the connection is closed. If cancelled, close it at once."""
        try:
            if isinstance(self._stream, trio.SSLStream):
                with trio.move_on_after(_HANDSHAKE_TIMEOUT_S) as handshake:
                    await self._stream.do_handshake()
                if handshake.cancelled_caught:
                    return
            while (request := await self._next_request()) is not None:
                await self._handle(request)
                states = {self.http.our_state, self.http.their_state}
                if self.is_broken or states != {h11.DONE}:
                    break
                self.http.start_next_cycle()
            if self.http.our_state is not h11.IDLE and not self.is_broken:
                await self._linger()
        finally:
            await trio.aclose_forcefully(self._stream)

    async def _next_request(self) -> h11.Request | None:
        """Return the next request; None if none came, or if it was invalid and got its response."""
        with trio.move_on_after(IDLE_TIMEOUT_S):
            try:
                while (event := self.http.next_event()) is h11.NEED_DATA:
                    if not (data := await self.read()):
                        return None
                    self.http.receive_data(data)
            except h11.RemoteProtocolError as error:
                await self.respond(error.error_status_hint)
                return None
            if not isinstance(event, h11.Request):
                return None
            size = len(event.method) + len(event.target)
            size += sum(len(name) + len(value) + len(b": \r\n") for name, value in event.headers)
            if size < HEADERS_MAX:
                return event
            # h11 itself limits only headers that arrive in several pieces.
            await self.respond(431)
        return None

    async def _handle(self, request: h11.Request) -> None:
        found = {name: value.strip() for name, value in request.headers}
        options = [one.strip() for one in found.get(b"connection", b"").lower().split(b",")]
        exchange: _Request
        if (
            request.method != b"GET"
            or b"upgrade" not in options
            or found.get(b"upgrade", b"").lower() != b"websocket"
        ):
            exchange = _Request(self, self._scope(request))
        elif (
            request.http_version == b"1.1"
            and found.get(b"sec-websocket-version") == b"13"
            and (key := found.get(b"sec-websocket-key"))
            and not found.keys() & {b"content-length", b"transfer-encoding"}
        ):
            self.http.next_event()  # the end of the request, which has no body
            exchange = _WebSocket(self, self._scope(request), key)
        else:
            await self.respond(400)
            return
        try:
            async with trio.open_nursery() as nursery:
                if isinstance(exchange, _WebSocket):
                    nursery.start_soon(exchange.send_pings)
                await self._app(exchange.scope, exchange.receive, exchange.send)
                nursery.cancel_scope.cancel()
        except* (_PeerGoneError, ClientDisconnect, WebSocketDisconnect):
            pass
        except* Exception as errors:  # noqa: BLE001  a bug in a request must not end the others
            _log.error("a request failed", exc_info=errors)
        await exchange.end()

    def _scope(self, request: h11.Request) -> dict[str, Any]:
        stream = self._stream
        is_tls = isinstance(stream, trio.SSLStream)
        transport = stream.transport_stream if isinstance(stream, trio.SSLStream) else stream
        path, _, query = request.target.partition(b"?")
        return {
            "type": "http",
            "asgi": {"spec_version": "2.1", "version": "3.0"},
            "http_version": request.http_version.decode(),
            "method": request.method.decode("ascii").upper(),
            "scheme": "https" if is_tls else "http",
            "path": unquote(path.decode("ascii")),
            "raw_path": path,
            "query_string": query,
            "root_path": "",
            "headers": list(request.headers),
            "client": transport.socket.getpeername()[:2],
            "server": transport.socket.getsockname()[:2],
            "state": {"connection": self},
            "extensions": {},
        }

    async def read(self, timeout_s: float = math.inf) -> bytes:
        """Return the next bytes; b"" if the peer is gone, or was silent for `timeout_s`."""
        with trio.move_on_after(timeout_s) as self._reading, contextlib.suppress(*_GONE):
            return bytes(await self._stream.receive_some(_CHUNK))
        return b""

    def end_reading(self) -> None:
        """Let `read` return, if a task is in it."""
        self._reading.cancel()

    async def respond(self, status: int) -> None:
        """Send a response without a body, the connection's last, unless a response was begun."""
        if self.http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            headers = [(b"content-length", b"0"), (b"connection", b"close")]
            await self.send(h11.Response(status_code=status, headers=complete(headers)))
            await self.send(h11.EndOfMessage())

    async def send(self, event: Any) -> None:
        """Send an event of h11; drop it if the peer has broken the protocol."""
        try:
            data = self.http.send(event)
        except h11.LocalProtocolError:
            if self.http.their_state is not h11.ERROR:
                raise
        else:
            await self.send_data(data or b"")

    async def send_data(self, data: bytes) -> None:
        """Send `data`, unless the peer is gone, or takes longer than `SEND_TIMEOUT_S`."""
        view = memoryview(data)
        is_sent = False
        try:
            async with self._sending:
                if self.is_broken:
                    return
                with contextlib.suppress(*_GONE, trio.TooSlowError):
                    for start in range(0, len(view), _CHUNK):
                        with trio.fail_after(SEND_TIMEOUT_S):
                            await self._stream.send_all(view[start : start + _CHUNK])
                    is_sent = True
        finally:
            if not is_sent:
                # Even if cancelled, as h11 counts the data as sent: nothing may follow it.
                self.is_broken = True
                self.end_reading()

    async def _linger(self) -> None:
        with trio.move_on_after(LINGER_S), contextlib.suppress(*_GONE):
            if isinstance(self._stream, trio.SocketStream):
                await self._stream.send_eof()
            received = 0
            while received < _LINGER_BYTES and (data := await self.read()):
                received += len(data)


class _Request:
    def __init__(self, connection: HttpConnection, scope: dict[str, Any]) -> None:
        self.scope: Final = scope
        self._connection: Final = connection
        self._http: Final = connection.http
        self._has_body = True
        self._over: Final = trio.Event()

    @property
    def _is_over(self) -> bool:
        return self._over.is_set() or self._connection.is_broken

    async def receive(self) -> Any:
        """Return the next part of the body, or the disconnect message: ASGI's `receive`."""
        # A body of many small chunks would otherwise stop the whole worker.
        await trio.lowlevel.checkpoint()
        while not self._is_over:
            if self._http.they_are_waiting_for_100_continue:
                await self._connection.send(h11.InformationalResponse(status_code=100, headers=[]))
            try:
                event = self._http.next_event()
            except h11.RemoteProtocolError as error:
                await self._connection.respond(error.error_status_hint)
                break
            if isinstance(event, h11.Data | h11.EndOfMessage):
                body = bytes(event.data) if isinstance(event, h11.Data) else b""
                return {"type": "http.request", "body": body, "more_body": bool(body)}
            if event is h11.PAUSED:
                # The next request is there: nothing more is read until this one is over.
                await self._over.wait()
            elif data := await self._connection.read():
                self._http.receive_data(data)
            else:
                break
        self._over.set()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        """Send a message of the application: ASGI's `send`."""
        if self._is_over:
            # A loop that sends would stop the whole worker without a checkpoint. The second one
            # lets a task that is in `receive` get the disconnect message before this error.
            await trio.lowlevel.checkpoint()
            await trio.lowlevel.checkpoint()
            raise _PeerGoneError
        await self._send(message)

    async def _send(self, message: Any) -> None:
        if message["type"].endswith("http.response.start"):
            status = int(message["status"])
            self._has_body = self.scope["method"] != "HEAD" and status not in (204, 304)
            headers = complete(message.get("headers", ()), self.scope["path"])
            if self._http.they_are_waiting_for_100_continue:
                # The peer may leave the body out now: the next bytes can be body or request.
                headers.append((b"connection", b"close"))
            await self._connection.send(h11.Response(status_code=status, headers=headers))
            return
        body = bytes(message.get("body", b""))
        if body and self._has_body:
            await self._connection.send(h11.Data(data=body))
        if not message.get("more_body", False):
            await self._connection.send(h11.EndOfMessage())
            self._over.set()
            self._connection.end_reading()

    async def end(self) -> None:
        """Send what is missing after the application has ended."""
        if not self._is_over:
            await self._connection.respond(500)
        # Read the rest of a short body: at its end, the connection can be used again, as the peer
        # expects of a response without `Connection: close`.
        room = _CHUNK
        with trio.move_on_after(LINGER_S), contextlib.suppress(h11.RemoteProtocolError):
            while self._http.our_state is h11.DONE and self._http.their_state is h11.SEND_BODY:
                await trio.lowlevel.checkpoint()
                if self._http.next_event() is h11.NEED_DATA:
                    if room <= 0 or not (data := await self._connection.read()):
                        break
                    room -= len(data)
                    self._http.receive_data(data)


class _WebSocket(_Request):
    """A WebSocket. Its messages are not compressed: 64 KiB could become 64 MiB."""

    def __init__(self, connection: HttpConnection, scope: dict[str, Any], key: bytes) -> None:
        offers = [value for name, value in scope["headers"] if name == b"sec-websocket-protocol"]
        scope["type"] = "websocket"
        scope["scheme"] = scope["scheme"].replace("http", "ws")
        offered = [one.decode("latin-1").strip() for value in offers for one in value.split(b",")]
        scope["subprotocols"] = offered
        scope["extensions"] = {"websocket.http.response": {}}
        super().__init__(connection, scope)
        self._key: Final = key
        self._frames: Final = Connection(ConnectionType.SERVER)
        self._buffer: Any = None
        self._is_announced = self._is_accepted = False

    async def receive(self) -> Any:
        if not self._is_announced:
            self._is_announced = True
            return {"type": "websocket.connect"}
        await trio.lowlevel.checkpoint()
        while not self._is_over:
            # One at a time: wsproto's state is that after the last event which was taken.
            if (event := next(self._frames.events(), None)) is not None:
                if (message := await self._handle(event)) is not None:
                    return message
                continue
            data = await self._connection.read(SILENCE_TIMEOUT_S)
            if not data or not self._is_accepted:
                break
            self._frames.receive_data(data)
        self._over.set()
        return {"type": "websocket.disconnect", "code": int(CloseReason.ABNORMAL_CLOSURE)}

    async def _handle(self, event: events.Event) -> Any:
        """Handle an event; return the message for the application if one is complete."""
        if isinstance(event, events.Ping):
            await self._send_event(event.response())
        elif isinstance(event, events.CloseConnection):
            if self._frames.state is ConnectionState.REMOTE_CLOSING:
                await self._send_event(event.response())
            self._over.set()
        elif isinstance(event, events.Message):
            is_text = isinstance(event, events.TextMessage)
            if self._buffer is None:
                self._buffer = StringIO() if is_text else BytesIO()
            self._buffer.write(event.data)
            if self._buffer.tell() > self._connection.max_message_bytes:
                await self._send_event(events.CloseConnection(CloseReason.MESSAGE_TOO_BIG))
                self._over.set()
            elif event.message_finished:
                content, self._buffer = self._buffer.getvalue(), None
                return {"type": "websocket.receive", "text" if is_text else "bytes": content}
        return None

    async def _send(self, message: Any) -> None:
        match message["type"]:
            case "websocket.accept":
                await self._accept(message)
            case "websocket.send" if (text := message.get("text")) is not None:
                await self._send_event(events.TextMessage(text))
            case "websocket.send":
                await self._send_event(events.BytesMessage(message["bytes"]))
            case "websocket.close" if self._is_accepted:
                code, reason = message.get("code", 1000), message.get("reason")
                await self._send_event(events.CloseConnection(code, reason))
            case "websocket.close":
                await self._connection.respond(403)
            case _:
                # The response with which the application refuses the WebSocket.
                await super()._send(message)

    async def _accept(self, message: Any) -> None:
        headers = [(b"upgrade", b"WebSocket"), (b"connection", b"Upgrade"), *message["headers"]]
        headers.append((b"sec-websocket-accept", generate_accept_token(self._key)))
        if subprotocol := message.get("subprotocol"):
            headers.append((b"sec-websocket-protocol", subprotocol.encode()))
        headers = complete(headers)
        await self._connection.send(h11.InformationalResponse(status_code=101, headers=headers))
        self._is_accepted = True
        self._frames.receive_data(self._http.trailing_data[0])

    async def _send_event(self, event: events.Event) -> None:
        state = self._frames.state
        is_reply = isinstance(event, events.CloseConnection)
        if state is ConnectionState.OPEN or (is_reply and state is ConnectionState.REMOTE_CLOSING):
            await self._connection.send_data(self._frames.send(event))

    async def send_pings(self) -> None:
        while True:
            await trio.sleep(PING_INTERVAL_S)
            if self._is_accepted:
                await self._send_event(events.Ping())

    async def end(self) -> None:
        if self._is_accepted and not self._is_over:
            await self._send_event(events.CloseConnection(CloseReason.INTERNAL_ERROR))
        await super().end()


def complete(headers: Iterable[tuple[bytes, bytes]], path: str = "") -> list[tuple[bytes, bytes]]:
    """Return the headers of a response with those that every response must have."""
    own = list(headers)
    found = {name.lower() for name, _ in own}
    # Browsers check files for changes each time, and store no other responses.
    caching = b"no-cache" if path.startswith("/assets/") else b"no-store"
    date = formatdate(usegmt=True).encode()
    every = [*_PAGE_HEADERS, (b"cache-control", caching), (b"date", date)]
    return own + [one for one in every if one[0] not in found]
