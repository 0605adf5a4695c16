"""Parses the outer members of a JSON-RPC message: enough to route it without decoding its contents.

An `Envelope` is never encoded: to pass a message on unchanged, send the line that was received.
`params`, `result` and `error` are the raw JSON that was received.
"""

from typing import Any, Final, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.acp.raw_json import members
from acpterm.jsonrpc import Id


class Envelope(Struct, frozen=True):
    """The outer members of a message; a member that the message lacks is `UNSET`."""

    jsonrpc: Any = UNSET
    # `float` because JSON has one number type: 1.0 is the same id as 1.
    id: int | float | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def key(self) -> Id:
        """The message's id as received, for use in the response; None if it is null or missing.

        The id may be a number that JSON-RPC advises against, such as 1.5.
        """
        return None if isinstance(self.id, UnsetType) else cast("Id", self.id)

    @property
    def is_message(self) -> bool:
        """Whether this is a message at all, and not such as {"level":"info","id":1}."""
        return self.jsonrpc == "2.0" and (self.method is not UNSET or self.id is not UNSET)

    @property
    def is_request(self) -> bool:
        """Whether the message is a request, which needs a response."""
        return self.method is not UNSET and self.id is not UNSET

    @property
    def is_response(self) -> bool:
        """Whether the message is the response to a request."""
        return self.method is UNSET and self.id is not UNSET


_envelopes: Final = msgspec.json.Decoder(Envelope)
EMPTY: Final = Envelope()
"""The envelope of a line that is not a message."""


def parse_envelope(line: bytes) -> Envelope:
    """Parse the outer members of the message in `line`; return `EMPTY` if it is not a message."""
    try:
        return _envelopes.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return EMPTY


def is_true(raw: Raw | UnsetType | None) -> bool:
    """Return whether a raw JSON value is `true`; False if it is missing."""
    return isinstance(raw, Raw) and bytes(raw) == b"true"


def cancelled_id(params: Raw | UnsetType) -> Id:
    """Return the id of the request to cancel, from the params of a `$/cancel_request`.

    Return None if the params have no id.
    """
    raw = members(params).get("requestId")
    return None if raw is None else parse_envelope(b'{"id":' + bytes(raw) + b"}").key
