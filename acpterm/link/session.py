"""One end of a JSON-RPC stream, without I/O: requests, their responses, and what is sent again.

States:

- *open*: messages are sent.
- *recovering*, from `lost` to `resumed`: the stream has ended, and another one is being opened. New
  messages are queued behind those that are sent again (`unanswered`).
- *closed*: every pending and every later request gets the error `closed`.

The driver owns the stream. It passes each received byte to `receive`, and each event to `dispatch`;
the session passes each line to send to `put`. No callback may block.
"""

from collections.abc import Callable
from typing import Any, Final, Protocol, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from acpterm.acp.base import Wire
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
from acpterm.link.daemon import DaemonError
from acpterm.link.unanswered import LostRequests, Unanswered

Response: TypeAlias = Raw | RpcError
OnResponse: TypeAlias = Callable[[Response], None]
W = TypeVar("W", bound=Wire)


class ClientSession:
    """Requests and responses on one stream after another; `name` is the peer's in error messages.

    `max_line` and `lenient` are those of `Peer`. `unanswered` keeps what `lost` sends again. By
    default the peer's requests are refused. Without `on_invalid`, a line that is not a message
    closes the session, since it may have been an awaited response.
    """

    def __init__(
        self,
        name: str,
        put: Callable[[bytes], None],
        max_line: int = MESSAGE_BYTES_MAX,
        *,
        lenient: bool = False,
        unanswered: Unanswered | None = None,
        on_request: Callable[[RequestReceived], None] | None = None,
        on_notification: Callable[[NotificationReceived], None] | None = None,
        on_cancel: Callable[[Id], None] | None = None,
        on_invalid: Callable[[RpcError], None] | None = None,
    ) -> None:
        self.name: Final = name
        self.closed: RpcError | None = None
        """Why the session is closed; None before."""
        self._put = put
        self._peer = Peer(max_line, lenient=lenient)
        self._unanswered = unanswered
        self._pending: dict[int, OnResponse] = {}
        self._on_request = on_request or self._refuse
        self._on_notification = on_notification
        self._on_cancel = on_cancel
        self._on_invalid = on_invalid

    def call(self, method: str, params: Any, on_response: OnResponse) -> int | None:
        """Send a request; `on_response` is called with the result or error. Return its id.

        If the session is closed, call `on_response` at once, and return None.
        """
        if self.closed is not None:
            on_response(self.closed)
            return None
        id_, line = self._peer.request(method, params)
        self._pending[id_] = on_response
        if self._unanswered is not None:
            self._unanswered.request(id_, method, line)
        self._put(line)
        return id_

    def notify(self, method: str, params: Any) -> None:
        """Send a notification; drop it if the session is closed."""
        if self.closed is None:
            line = self._peer.notify(method, params)
            if self._unanswered is not None:
                self._unanswered.notification(method, line)
            self._put(line)

    def cancel(self, id_: int) -> None:
        """Send a `$/cancel_request` for a pending request, which still gets a response."""
        if self.closed is None and id_ in self._pending:
            line = self._peer.cancel(id_)
            if self._unanswered is not None:
                self._unanswered.cancel(id_, line)
            self._put(line)

    def respond(self, id_: Id, response: Any) -> None:
        """Answer the peer's request `id_`: with an error if `response` is an `RpcError`."""
        if self.closed is not None:
            return
        if isinstance(response, RpcError):
            self._put(self._peer.respond_error(id_, response))
        else:
            self._put(self._peer.respond(id_, response))

    def receive(self, data: bytes | bytearray) -> list[Event]:
        """Parse received bytes; return the events for `dispatch`, in order."""
        return self._peer.receive_data(data)

    def dispatch(self, event: Event) -> None:
        """Call the callbacks for `event`."""
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

    def lost(self) -> LostRequests:
        """Drop what belongs to the lost stream; return what to send on the next, for `resumed`."""
        self._peer.close()  # drops an incomplete line
        return LostRequests([], []) if self._unanswered is None else self._unanswered.lost()

    def resumed(self, lost: LostRequests) -> None:
        """Fail the requests that are not sent again."""
        for id_, failure in lost.errors:
            if isinstance(id_, int):
                self._peer.give_up(id_)
                self._resolve(id_, failure)

    def close(self, why: RpcError) -> None:
        """Fail every pending and every later request with `why`, or with an earlier reason."""
        if self.closed is None:
            self.closed = why
        pending, self._pending = self._pending, {}
        for on_response in pending.values():
            on_response(self.closed)

    def _refuse(self, request: RequestReceived) -> None:
        message = f"there is no method {quote(request.method)} here"
        self.respond(request.id, RpcError(METHOD_NOT_FOUND, message))

    def _resolve(self, id_: int, response: Response) -> None:
        if self._unanswered is not None:
            self._unanswered.answered(id_)
        if on_response := self._pending.pop(id_, None):
            on_response(response)


def ignore(response: Response) -> None:
    """Ignore a response: the `on_response` of a request whose outcome does not matter."""
    del response


def decode_answer(name: str, method: str, answer: Raw, into: type[W]) -> W:
    """Decode the result of a request; raise `DaemonError` if the daemon is of another version."""
    try:
        return msgspec.json.decode(answer, type=into)
    except msgspec.DecodeError as error:
        raise DaemonError(
            f"{name} is of another version ({method}: {error}): end it with acpterm shutdown; the "
            "next command starts one of this version"
        ) from error


class StreamRequest(Protocol):
    """The params of a request that causes notifications; each notification contains `token`."""

    token: str


class _Notification(msgspec.Struct):
    token: str | None = None


_notifications: Final = msgspec.json.Decoder(_Notification)


def token_of(params: object) -> str | None:
    """Return the token of the stream that a notification with these params belongs to, if any."""
    if not isinstance(params, Raw):
        return None
    try:
        return _notifications.decode(params).token
    except msgspec.ValidationError:  # a newer daemon sends params of another format
        return None
