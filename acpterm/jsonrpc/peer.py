"""One end of a connection: which request belongs to which answer, in both directions.

The rule: every request that comes in is answered once, and every answer that comes in
belongs to one request that went out.

State, and what changes it:

- *in progress*: ids of the other side's requests that are owed an answer. A request adds its
  id; `respond` and `respond_error` take it out; a cancellation leaves it in. While an id is
  in progress another request with it is refused. Null ids cannot be told apart, so they are
  not kept here: such a request may be answered at any time and cannot be cancelled.
- *pending*: ids of our own requests which have no answer yet. They are 0, 1, 2, … and never
  used again. `request` adds one; its answer, good or malformed, takes it out; `cancel` leaves
  it in, for the other side still answers; `give_up` takes it out.
- *the unfinished line*: in the `LineSplitter`.

Nothing here reads or writes: bytes to send are returned, and sending them, in the order in
which they were returned, is the caller's.
"""

from collections.abc import Set as AbstractSet
from typing import Any, Final

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
from acpterm.jsonrpc.events import (
    CancelReceived,
    ErrorReceived,
    Event,
    InvalidReceived,
    NotificationReceived,
    RequestReceived,
    ResponseReceived,
    UnexpectedResponse,
)
from acpterm.jsonrpc.framing import LINE_BYTES_MAX, LineSplitter, Oversized
from acpterm.jsonrpc.messages import (
    ErrorObject,
    ErrorResponse,
    Id,
    InvalidMessage,
    Notification,
    Request,
    Response,
)

CANCEL_REQUEST: Final = "$/cancel_request"


class _Cancelled(Struct, rename="camel"):
    request_id: int | float | str | None


_cancelled: Final = msgspec.json.Decoder(_Cancelled)


class Peer:
    """One end of a connection."""

    def __init__(self, max_line: int = LINE_BYTES_MAX, *, lenient: bool = False) -> None:
        """Take lines of at most `max_line` bytes; refuse longer ones.

        `lenient` mends what can be (`mended`) before a line is refused.
        """
        self._lines = LineSplitter(max_line)
        self._lenient = lenient
        self._in_progress: set[int | str] = set()
        self._pending: set[int] = set()
        self._next_id = 0

    @property
    def in_progress(self) -> int:
        """How many of the other side's requests are owed an answer, null ids apart."""
        return len(self._in_progress)

    @property
    def pending(self) -> AbstractSet[int]:
        """The ids of our requests that have no answer yet, as of now."""
        return frozenset(self._pending)

    def receive_data(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """Take the next bytes from the other side; return what they say, in order."""
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
            match message:
                case Request():
                    events.append(self._request(message))
                case Notification(method="$/cancel_request"):
                    events += self._cancellation(message)
                case Notification(method, params):
                    events.append(NotificationReceived(method, params))
                case Response() | ErrorResponse():
                    events.append(self._answer(message))
        return events

    def close(self) -> bytes:
        """Say that nothing more comes; return the line that was left unfinished."""
        return self._lines.close()

    def request(self, method: str, params: Any = UNSET) -> tuple[int, bytes]:
        """Ask something; return the id its answer will have, and the line to send."""
        id_ = self._next_id
        line = encode_request(id_, method, params)
        self._next_id += 1
        self._pending.add(id_)
        return id_, line

    def notify(self, method: str, params: Any = UNSET) -> bytes:
        """Return the line that tells the other side something."""
        return encode_notification(method, params)

    def cancel(self, request_id: int) -> bytes:
        """Return the line that says a request of ours is no longer wanted.

        It stays pending: the other side answers it all the same. One that has been answered
        meanwhile may be cancelled too; the other side ignores that.
        """
        return encode_notification(CANCEL_REQUEST, {"requestId": request_id})

    def give_up(self, request_id: int) -> None:
        """Expect no answer to a request of ours any more: it was lost."""
        self._pending.discard(request_id)

    def respond(self, request_id: Id, result: Any) -> bytes:
        """Return the line that answers a request with its result.

        Raises LocalProtocolError when no such request is in progress. If the result cannot
        be encoded, that error is raised and the request stays in progress.
        """
        self._check_in_progress(request_id)
        line = encode_response(request_id, result)
        self._in_progress.discard(request_id)
        return line

    def respond_error(self, request_id: Id, error: RpcError) -> bytes:
        """Return the line that answers a request with an error. Raises as `respond` does."""
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
        right = f"a message may have at most {self._lines.max_line}"
        error = RpcError(INVALID_REQUEST, f"the message has {line.size} bytes: {right}")
        return InvalidReceived(encode_error(None, error), error)

    def _invalid(self, error: InvalidMessage) -> list[Event]:
        # The exception's traceback refers to the message, and to the list that this goes into.
        refusal = RpcError(error.code, error.message)
        if not error.is_response:
            return [InvalidReceived(encode_error(error.id, refusal), refusal)]
        events: list[Event] = [InvalidReceived(None, refusal)]
        if isinstance(error.id, int) and error.id in self._pending:
            # No better answer will come, and whoever asked must not wait for ever.
            self._pending.discard(error.id)
            what = ErrorObject(error.code, f"the answer was no response: {error.message}")
            events.append(ErrorReceived(error.id, what))
        return events

    def _request(self, request: Request) -> Event:
        id_ = request.id
        if id_ is not None:
            if id_ in self._in_progress:
                text = excerpt(msgspec.json.encode(id_))
                right = "a request needs an id that no unanswered one has"
                error = RpcError(INVALID_REQUEST, f"id {text} is still in progress: {right}")
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

    def _answer(self, answer: Response | ErrorResponse) -> Event:
        id_ = answer.id
        if not isinstance(id_, int) or id_ not in self._pending:
            return UnexpectedResponse(answer)
        self._pending.discard(id_)
        if isinstance(answer, Response):
            return ResponseReceived(id_, answer.result)
        return ErrorReceived(id_, answer.error)
