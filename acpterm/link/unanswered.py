"""The messages that a client has to send again if its connection to the daemon is lost.

When the daemon's worker dies, the next worker has the terminals, but none of the messages that were
sent to the dead worker, read or unread. So a client keeps its messages until a response shows that
they are no longer needed. `lost` returns those to send on the next connection, in their order:

- Every request without a response, with its old id, as long as its `Policy` allows: the dead worker
  may have executed it. The daemon recognises a `terminal/create` of an agent by the id.
- `$/cancel_request`, as long as the request that it names has no response.
- `session/update` and `session/cancel`, unless they are known to have been read. The daemon handles
  messages in order, so a notification has been read once a later request has its response.
- But not a `session/cancel` before a `terminal/create` of the same session. The dead worker may
  have created the terminal already, and the repeated cancel would end it.

Bounds: `size` counts the bytes of the requests, so that the caller can stop sending. If the
notifications exceed `NOTIFICATION_BYTES_MAX`, the oldest are dropped. The worker has read those,
since a Unix socket on Linux holds fewer unread bytes than this limit.

Requests with a null id cannot be distinguished, so they are not recorded and not sent again.
"""

import math
from collections import deque
from collections.abc import Callable
from typing import Final, NamedTuple

import msgspec

from acpterm.jsonrpc import INTERNAL_ERROR, Id, RpcError
from acpterm.link.errors import LostError

NOTIFICATION_BYTES_MAX: Final = 512 * 1024
_UPDATE: Final = "session/update"
_CANCEL: Final = "session/cancel"
_CREATE: Final = "terminal/create"


class Policy(NamedTuple):
    """Which requests are sent again."""

    repeats: Callable[[str], float]
    """Returns after how many losses a request of a method is sent again."""
    error: Callable[[str, int], RpcError]
    """Returns the error of a request that is not: of its method and the number of losses."""


_UNREPEATABLE: Final = {
    "_acpterm/terminal/write": "it was typed",
    "_acpterm/terminal/signal": "the signal was sent",
}
# These are pending for long anyway.
_WAITING: Final = ("terminal/wait_for_exit", "_acpterm/terminal/read", "_acpterm/events")
# A request that was pending at more losses may be their cause, and the keeper starts no sixth
# worker within a minute.
REPEATS_MAX: Final = 3


def _agent_repeats(method: str) -> float:
    if method in _UNREPEATABLE:
        return 0
    return math.inf if method in _WAITING else REPEATS_MAX


def _agent_error(method: str, losses: int) -> RpcError:
    if method in _UNREPEATABLE:
        why = (
            "the daemon was replaced while this was being done: it is unknown whether "
            f"{_UNREPEATABLE[method]}; read the screen before you repeat it"
        )
    else:
        why = (
            f"the daemon's worker died {losses} times while this was being done: it is "
            "not tried again, since it may be the reason"
        )
    return RpcError(INTERNAL_ERROR, f"{method}: {why}")


AGENT: Final = Policy(_agent_repeats, _agent_error)

_USER_PREFIX: Final = "_acpterm/"
# Most are repeated only once, since a request that has killed one worker may kill the next one.
_USER_REPEATS: Final = {
    "approval/list": 1,
    "events": math.inf,
    "session/list": 1,
    "share/list": 1,
    "status": 1,
    "terminal/get": 1,
    "terminal/kill": 1,
    "terminal/list": 1,
    "terminal/output": 1,
    "terminal/promote": 1,
    "terminal/read": 1,
    "terminal/screen": 1,
    "terminal/wait": math.inf,
}


def user_repeats(method: str) -> float:
    """Return after how many losses a request on the user's socket may be sent again."""
    return _USER_REPEATS.get(method.removeprefix(_USER_PREFIX), 0)


def unknown_outcome(name: str, method: str) -> LostError:
    """Return the error of a request that the daemon `name` may have executed before the loss."""
    return LostError(
        f"{name} went away before it answered: it is unknown whether "
        f"{method.removeprefix(_USER_PREFIX)} was done; acpterm ls shows what there is"
    )


def user_policy(name: str) -> Policy:
    """Return the policy of a connection to the user's socket of the daemon `name`."""
    return Policy(user_repeats, lambda method, _: unknown_outcome(name, method))


class _Params(msgspec.Struct, rename="camel"):
    session_id: str


class _Line(msgspec.Struct):
    params: _Params


_lines: Final = msgspec.json.Decoder(_Line)


class LostRequests(NamedTuple):
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

    def __init__(self, policy: Policy = AGENT) -> None:
        self._policy = policy
        self._next = 0
        self._requests: dict[Id, _Request] = {}
        self._notifications: deque[_Notification] = deque()
        self._notification_bytes = 0
        self.size = 0
        """Number of bytes of the requests that would be sent again."""

    def __len__(self) -> int:
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
        kept = line if self._policy.repeats(method) else b""
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
        """Remove the request `id_`, whose response was received; return its method, if known."""
        request = self._requests.get(id_)
        if request is None:
            return None
        if failed and request.repeats_of_id:
            # The daemon has refused another request with this id; this one is still pending.
            request.repeats_of_id -= 1
            return None
        del self._requests[id_]
        self.size -= len(request.line) + len(request.cancel)
        while self._notifications and self._notifications[0].number < request.number:
            self._notification_bytes -= len(self._notifications.popleft().line)
        return request.method

    def lost(self) -> LostRequests:
        """Record a loss; return what to send on the next connection, which remains recorded."""
        errors: list[tuple[Id, RpcError]] = []
        for id_, request in list(self._requests.items()):
            request.repeats_of_id = 0
            request.losses += 1
            if request.losses > self._policy.repeats(request.method):
                errors.append((id_, self._policy.error(request.method, request.losses)))
                del self._requests[id_]
                self.size -= len(request.line) + len(request.cancel)
        sent = [
            (request.number, request.line + request.cancel) for request in self._requests.values()
        ]
        sent += [(notification.number, notification.line) for notification in self._notifications]
        return LostRequests([line for _, line in sorted(sent)], errors)

    def _number(self) -> int:
        self._next += 1
        return self._next

    def _drop_cancel(self, create: bytes) -> None:
        """Drop the recorded `session/cancel`s of the session of `create`, a line."""
        if not any(sent.method == _CANCEL for sent in self._notifications):
            return
        session = _session(create)
        self._notifications = deque(
            sent
            for sent in self._notifications
            if sent.method != _CANCEL or _session(sent.line) != session
        )
        self._notification_bytes = sum(len(sent.line) for sent in self._notifications)


def _session(line: bytes) -> str | None:
    try:
        return _lines.decode(line).params.session_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
