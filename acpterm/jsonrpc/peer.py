"""One end of a JSON-RPC connection, which matches requests and responses in both directions.

The rule: every incoming request is answered once, and every incoming response belongs to one
outgoing request.

State, and what changes it:

- *in progress*: ids of the other side's requests that are not answered yet. A request adds its id;
  `respond` and `respond_error` remove it; a cancellation does not. While an id is in progress,
  another request with the same id is refused. Null ids cannot be distinguished, so they are not
  tracked: such a request may be answered at any time and cannot be cancelled.
- *pending*: ids of this side's requests that have no response yet. They are 0, 1, 2, … and never
  reused. `request` adds one; its response, valid or malformed, removes it; `cancel` does not,
  because the other side still responds; `give_up` removes it.
- *the unfinished line*: in the `LineSplitter`.

No I/O happens here: methods return the bytes to send, and the caller sends them in the order in
which they were returned. `receive_data` returns events. An event is a value: it contains what the
other side sent, and no reference to the peer.
"""

from typing import Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.jsonrpc.decoder import decode, id_of, replace_lone_surrogates
from acpterm.jsonrpc.encoder import (
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
)
from acpterm.jsonrpc.errors import INVALID_REQUEST, LocalProtocolError, RpcError, excerpt
from acpterm.jsonrpc.framing import MESSAGE_BYTES_MAX, LineSplitter, Oversized
from acpterm.jsonrpc.messages import (
    ErrorObject,
    ErrorResponse,
    Id,
    InvalidMessage,
    Notification,
    Request,
    Response,
)


class RequestReceived(Struct, frozen=True):
    """A request of the other side, to be answered once."""

    id: Id
    method: str
    params: Raw | UnsetType = UNSET


class NotificationReceived(Struct, frozen=True):
    """A notification of the other side."""

    method: str
    params: Raw | UnsetType = UNSET


class ResponseReceived(Struct, frozen=True):
    """The result of this side's request `id`, which is no longer pending."""

    id: int
    result: Raw


class ErrorReceived(Struct, frozen=True):
    """This side's request `id` has failed or got an invalid response."""

    id: int
    error: ErrorObject


class CancelReceived(Struct, frozen=True):
    """The other side has cancelled its request `id`, which must still be answered."""

    id: int | str


class UnexpectedResponse(Struct, frozen=True):
    """A response whose id is not that of a pending request of this side."""

    message: Response | ErrorResponse


class InvalidReceived(Struct, frozen=True):
    """A refused line, and the error response to send, if one may be sent."""

    reply: bytes | None
    error: RpcError


Event: TypeAlias = (
    RequestReceived
    | NotificationReceived
    | ResponseReceived
    | ErrorReceived
    | CancelReceived
    | UnexpectedResponse
    | InvalidReceived
)


CANCEL_REQUEST: Final = "$/cancel_request"


class _Cancelled(Struct, rename="camel"):
    request_id: int | float | str | None


_cancelled: Final = msgspec.json.Decoder(_Cancelled)


class Peer:
    """One end of a JSON-RPC connection. Its methods return the lines to send."""

    def __init__(self, max_line: int = MESSAGE_BYTES_MAX, *, lenient: bool = False) -> None:
        """Accept lines of at most `max_line` bytes; `lenient`: with half a surrogate pair."""
        self._lines = LineSplitter(max_line)
        self._lenient = lenient
        self._in_progress: set[int | str] = set()
        self._pending: set[int] = set()
        self._next_id = 0

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Process the next bytes from the other side; return the resulting events."""
        events: list[Event] = []
        for line in self._lines.feed(data):
            if isinstance(line, Oversized):
                events.append(self._oversized(line))
                continue
            try:
                message = decode(replace_lone_surrogates(line) if self._lenient else line)
            except InvalidMessage as error:
                events += self._invalid(error)
                continue
            except MemoryError:
                events.append(self._oversized(Oversized(len(line))))
                continue
            match message:
                case Request():
                    events.append(self._request(message))
                case Notification() if message.method == CANCEL_REQUEST:
                    events += self._cancellation(message)
                case Notification(method, params):
                    events.append(NotificationReceived(method, params))
                case Response() | ErrorResponse():
                    events.append(self._response(message))
        return events

    def close(self) -> bytes:
        """End the input; return the unfinished line."""
        return self._lines.close()

    def request(self, method: str, params: Any = UNSET) -> tuple[int, bytes]:
        """Start a request of this side; return its id, and the line to send."""
        id_ = self._next_id
        line = encode_request(id_, method, params)
        self._next_id += 1
        self._pending.add(id_)
        return id_, line

    def notify(self, method: str, params: Any = UNSET) -> bytes:
        return encode_notification(method, params)

    def cancel(self, request_id: int) -> bytes:
        """Return the line to send to cancel a request of this side, which stays pending."""
        return encode_notification(CANCEL_REQUEST, {"requestId": request_id})

    def give_up(self, request_id: int) -> None:
        """Stop treating a request as pending, because no response will arrive."""
        self._pending.discard(request_id)

    def respond(self, request_id: Id, result: Any) -> bytes:
        """Return the line to send for a response with a result.

        Raises `LocalProtocolError` if no request with this id is in progress (None is not checked).
        If the result cannot be encoded, raises the encoder's error, and the request stays in
        progress.
        """
        self._check_in_progress(request_id)
        line = encode_response(request_id, result)
        self._in_progress.discard(request_id)
        return line

    def respond_error(self, request_id: Id, error: RpcError) -> bytes:
        """Return the line to send for an error response. Raises `LocalProtocolError`."""
        self._check_in_progress(request_id)
        line = encode_error(request_id, error)
        self._in_progress.discard(request_id)
        return line

    def _check_in_progress(self, request_id: Id) -> None:
        if request_id is not None and request_id not in self._in_progress:
            raise LocalProtocolError(
                f"no request with id {request_id!r} is in progress: each one is answered once"
            )

    def _oversized(self, line: Oversized) -> InvalidReceived:
        limit = f"a message may have at most {self._lines.max_line}"
        if line.size <= self._lines.max_line:
            limit = "there is no memory for it"
        error = RpcError(INVALID_REQUEST, f"the message has {line.size} bytes: {limit}")
        return InvalidReceived(encode_error(None, error), error)

    def _invalid(self, error: InvalidMessage) -> list[Event]:
        # Create a new exception, because the traceback of `error` would keep the message alive.
        refusal = RpcError(error.code, error.message)
        if not error.is_response:
            return [InvalidReceived(encode_error(error.id, refusal), refusal)]
        events: list[Event] = [InvalidReceived(None, refusal)]
        if isinstance(error.id, int) and error.id in self._pending:
            # No valid response will follow, and the caller must not wait forever.
            self._pending.discard(error.id)
            what = ErrorObject(error.code, f"the answer was no response: {error.message}")
            events.append(ErrorReceived(error.id, what))
        return events

    def _request(self, request: Request) -> Event:
        id_ = request.id
        if id_ is not None:
            if id_ in self._in_progress:
                text = excerpt(msgspec.json.encode(id_))
                expected = "a request needs an id that no unanswered one has"
                error = RpcError(INVALID_REQUEST, f"id {text} is still in progress: {expected}")
                return InvalidReceived(encode_error(id_, error), error)
            self._in_progress.add(id_)
        return RequestReceived(id_, request.method, request.params)

    def _cancellation(self, notification: Notification) -> list[Event]:
        params: Raw | UnsetType = notification.params
        if isinstance(params, UnsetType):
            return []
        try:
            id_ = id_of(_cancelled.decode(params).request_id)
        except (msgspec.DecodeError, RecursionError):
            return []
        if isinstance(id_, int | str) and id_ in self._in_progress:
            return [CancelReceived(id_)]
        return []

    def _response(self, response: Response | ErrorResponse) -> Event:
        id_ = response.id
        if not isinstance(id_, int) or id_ not in self._pending:
            return UnexpectedResponse(response)
        self._pending.discard(id_)
        if isinstance(response, Response):
            return ResponseReceived(id_, response.result)
        return ErrorReceived(id_, response.error)
