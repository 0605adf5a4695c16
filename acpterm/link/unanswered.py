"""The messages that a client has to send again if its connection to the daemon is lost.

When the daemon's worker dies, the next worker has the terminals, but none of the messages that were
sent to the dead worker, read or unread. So a client keeps the messages that it sends until a
response shows that they are no longer needed. `lost` returns the messages to send on the next
connection. No I/O: the caller sends them.

These messages are sent again, in the original order:

- Every request without a response, with its old id. The daemon recognises a `terminal/create` by
  the id and does not execute it twice; most other requests can be repeated.
- But `UNREPEATABLE` requests, which type text or send a signal, are not sent again: the dead worker
  may have executed them. They get an error response that says so; their lines are not kept.
- But a request that was pending when `LOSSES_MAX` connections were lost is not sent again: it may
  be the cause of the workers' deaths, and the keeper starts no sixth worker within a minute. It
  gets an error response. Requests that wait for a program (`_WAITING`) are always sent again, since
  they are pending for long anyway.
- `$/cancel_request`, as long as the request that it names has no response.
- `session/update` and `session/cancel`, unless they are known to have been read. The daemon handles
  messages in order, so a notification has been read once a later request has its response. Sending
  an update twice is harmless, since its content is the same.
- But a `session/cancel` is not sent again if a `terminal/create` of the same session was sent after
  it. The dead worker may have created the terminal already, and the repeated cancel would end it,
  although the agent created it after the cancel.

Bounds: `size` is the number of bytes of the requests, so that the caller can stop sending above a
limit. If the notifications exceed `NOTIFICATION_BYTES_MAX`, the oldest are dropped. The worker has
read those, since a Unix socket on Linux holds fewer unread bytes than this limit.

Requests with a null id cannot be distinguished, so they are not recorded and not sent again.
"""

from collections import deque
from typing import Final, NamedTuple

import msgspec

from acpterm.jsonrpc import INTERNAL_ERROR, Id, RpcError

UNREPEATABLE: Final = {
    "_acpterm/terminal/write": "it was typed",
    "_acpterm/terminal/signal": "the signal was sent",
}
"""The methods whose requests are not sent again. Each value completes the sentence "it is unknown
whether …" in the error message."""
# Number of lost connections at which a request is not sent again.
LOSSES_MAX: Final = 4
NOTIFICATION_BYTES_MAX: Final = 512 * 1024
_WAITING: Final = ("terminal/wait_for_exit", "_acpterm/terminal/read", "_acpterm/events")
_UPDATE: Final = "session/update"
_CANCEL: Final = "session/cancel"
_CREATE: Final = "terminal/create"


class _Params(msgspec.Struct, rename="camel"):
    session_id: str


class _Line(msgspec.Struct):
    params: _Params


_lines: Final = msgspec.json.Decoder(_Line)


class Lost(NamedTuple):
    """After a lost connection: the messages to send again, and the requests that fail instead."""

    lines: list[bytes]
    """Lines to send on the next connection, in this order."""
    errors: list[tuple[Id, RpcError]]
    """The id and the error response of each request that is not sent again."""


class _Request:
    __slots__ = ("cancel", "line", "losses", "method", "number", "repeats_of_id")

    def __init__(self, number: int, method: str, line: bytes) -> None:
        self.number = number
        self.method = method
        self.line = line
        self.cancel = b""
        self.losses = 0
        # Number of further requests with this id while it was in use: the daemon responds to each
        # of them with an error.
        self.repeats_of_id = 0


class _Notification(NamedTuple):
    number: int
    method: str
    line: bytes


class Unanswered:
    """One client's requests without a response, and notifications that may not have been read.

    Lines include their newline.
    """

    def __init__(self) -> None:
        self._next = 0
        self._requests: dict[Id, _Request] = {}
        self._notifications: deque[_Notification] = deque()
        self._notification_bytes = 0
        self.size = 0
        """Number of bytes of the requests that would be sent again."""

    def __len__(self) -> int:
        """Return the number of requests without a response."""
        return len(self._requests)

    @property
    def ids(self) -> list[Id]:
        """The ids of the requests without a response, in the order in which they were sent."""
        return list(self._requests)

    def request(self, id_: Id, method: str, line: bytes) -> None:
        """Record the request in `line`; call this before its response is recorded (`answered`)."""
        # The daemon answers an invalid id, such as 1.5, with the id null.
        if not isinstance(id_, (int, str)):
            return
        if earlier := self._requests.get(id_):
            earlier.repeats_of_id += 1
            return
        if method == _CREATE:
            self._drop_cancel(line)
        kept = b"" if method in UNREPEATABLE else line
        self._requests[id_] = _Request(self._number(), method, kept)
        self.size += len(kept)

    def notification(self, method: str, line: bytes) -> None:
        """Record a notification if it is of a kind that is sent again."""
        if method not in (_UPDATE, _CANCEL):
            return
        self._notifications.append(_Notification(self._number(), method, line))
        self._notification_bytes += len(line)
        while self._notification_bytes > NOTIFICATION_BYTES_MAX:
            self._notification_bytes -= len(self._notifications.popleft().line)

    def cancel(self, id_: Id, line: bytes) -> None:
        """Record that the request `id_` was cancelled by the `$/cancel_request` in `line`."""
        if (request := self._requests.get(id_)) and not request.cancel:
            request.cancel = line
            self.size += len(line)

    def answered(self, id_: Id, *, failed: bool = False) -> str | None:
        """Remove the request with the id `id_`, whose response was received; return its method.

        `failed` is true if the response is an error. Return None if no request with this id is
        recorded. If the agent sends another request with the id of a pending one, the daemon
        refuses that request with an error. When this error arrives, keep the pending request, and
        return None.
        """
        request = self._requests.get(id_)
        if request is None:
            return None
        if failed and request.repeats_of_id:
            request.repeats_of_id -= 1
            return None
        del self._requests[id_]
        self.size -= len(request.line) + len(request.cancel)
        while self._notifications and self._notifications[0].number < request.number:
            self._notification_bytes -= len(self._notifications.popleft().line)
        return request.method

    def lost(self) -> Lost:
        """Record that the connection was lost; return what to send on the next connection.

        The messages to send again remain recorded. Requests that get an error response instead are
        removed.
        """
        errors: list[tuple[Id, RpcError]] = []
        for id_, request in list(self._requests.items()):
            request.repeats_of_id = 0
            request.losses += request.method not in _WAITING
            if request.method in UNREPEATABLE or request.losses >= LOSSES_MAX:
                errors.append((id_, _error(request)))
                del self._requests[id_]
                self.size -= len(request.line) + len(request.cancel)
        sent = [
            (request.number, request.line + request.cancel) for request in self._requests.values()
        ]
        sent += [(notification.number, notification.line) for notification in self._notifications]
        return Lost([line for _, line in sorted(sent)], errors)

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _drop_cancel(self, create: bytes) -> None:
        """Drop the recorded `session/cancel`s of one session.

        `create` is the line of a `terminal/create` in that session.
        """
        if not any(sent.method == _CANCEL for sent in self._notifications):
            return
        session = _session(create)
        self._notifications = deque(
            sent
            for sent in self._notifications
            if sent.method != _CANCEL or _session(sent.line) != session
        )
        self._notification_bytes = sum(len(sent.line) for sent in self._notifications)


def _error(request: _Request) -> RpcError:
    """Return the error response to a request that is not sent again."""
    if request.method in UNREPEATABLE:
        why = (
            "the daemon was replaced while this was being done: it is unknown whether "
            f"{UNREPEATABLE[request.method]}; read the screen before you repeat it"
        )
    else:
        why = (
            f"the daemon's worker died {request.losses} times while this was being done: it is "
            "not tried again, since it may be the reason"
        )
    return RpcError(INTERNAL_ERROR, f"{request.method}: {why}")


def _session(line: bytes) -> str | None:
    try:
        return _lines.decode(line).params.session_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
