"""The agent in a proxy chain: the successor of this proxy, behind the conductor.

See ACP v1 (unstable), `proxy/initialize` and `proxy/successor`. The conductor starts the proxy, and
is at the other end of its only stream. A message of the client, or for it, is as if there were no
conductor; a request or notification of the successor, or for it, is in an envelope. Requests keep
their ids, since those of the conductor are unique in the stream. So the id of an envelope is that
of the request in it, and by the id `Successor` knows whether a response or a `$/cancel_request`,
which have no envelope, is of the successor.
"""

from typing import Any, Final, NamedTuple

import structlog
from msgspec import UNSET, Raw

from acpterm.acp.raw_json import members, text
from acpterm.agents.envelope import EMPTY, Envelope, cancelled_id, parse_envelope
from acpterm.jsonrpc import (
    INVALID_PARAMS,
    Id,
    RpcError,
    encode_error,
    encode_notification,
    encode_request,
    replace_lone_surrogates,
)
from acpterm.runtime.send_queue import SendQueue

INITIALIZE: Final = "proxy/initialize"
_ENVELOPE: Final = "proxy/successor"
_CANCEL: Final = "$/cancel_request"

_log = structlog.get_logger("acpterm.lines")


class Unwrapped(NamedTuple):
    """A message as it would be without a conductor."""

    line: bytes
    is_of_agent: bool


class Successor:
    """The queue of messages to the successor, which uses that of the `conductor`."""

    def __init__(self, conductor: SendQueue) -> None:
        self._conductor = conductor
        # The ids of requests without a response, to and from the successor.
        self._sent: set[Id] = set()
        self._received: set[Id] = set()

    @property
    def is_full(self) -> bool:
        return self._conductor.is_full

    async def drain(self) -> None:
        await self._conductor.drain()

    def put(self, line: bytes) -> None:
        """Send a message to the successor, in an envelope if it needs one."""
        message = parse_envelope(line)
        if message.is_response:
            self._received.discard(message.key)
        elif isinstance(message.method, str) and message.method != _CANCEL:
            inner: dict[str, Any] = {"method": message.method}
            if message.params is not UNSET:
                inner["params"] = message.params
            if message.is_request:
                self._sent.add(message.key)
                line = encode_request(message.key, _ENVELOPE, inner)
            else:
                line = encode_notification(_ENVELOPE, inner)
        self._conductor.put(line)

    def unwrap(self, line: bytes) -> Unwrapped | None:
        """Return a message of the conductor without its envelope; None if it is not one."""
        message = parse_envelope(line)
        if message is EMPTY:
            message = parse_envelope(replace_lone_surrogates(line))
        if message.method is UNSET and not message.is_response:
            _log.error("no message, dropped", peer="the conductor", bytes=len(line))
            return None
        if message.method == _ENVELOPE:
            return self._open(message)
        is_of_agent = False
        if message.is_response:
            is_of_agent = message.key in self._sent
            self._sent.discard(message.key)
        elif message.method == _CANCEL:
            is_of_agent = cancelled_id(message.params) in self._received
        elif message.method == INITIALIZE:
            line = encode_request(message.key, "initialize", message.params)
        return Unwrapped(line, is_of_agent)

    def _open(self, envelope: Envelope) -> Unwrapped | None:
        fields = members(envelope.params)
        method = text(fields.get("method"))
        params = fields.get("params", Raw(b"null"))
        first = bytes(params)[:1]
        if method is None or first not in (b"{", b"[", b"n"):
            if envelope.is_request:
                why = f"{_ENVELOPE} has a method, a string, and params, an object or array"
                self._conductor.put(encode_error(envelope.key, RpcError(INVALID_PARAMS, why)))
            return None
        sent = UNSET if first == b"n" else params
        if not envelope.is_request:
            return Unwrapped(encode_notification(method, sent), True)
        self._received.add(envelope.key)
        return Unwrapped(encode_request(envelope.key, method, sent), True)
