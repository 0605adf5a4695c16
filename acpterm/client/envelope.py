"""What a line says on its outside: enough to pass it on, without looking at what is in it.

The rule: whoever only passes a message on passes on the line as it came. So nothing here is ever
encoded again; `params`, `result` and `error` are the JSON that they came as.
"""

from typing import Final, cast

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.jsonrpc import Id


class Envelope(Struct, frozen=True):
    """The members of a message, as far as they were there."""

    # `float` since JSON has one kind of number: 1.0 is the same id as 1.
    id: int | float | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def key(self) -> Id:
        """Its id as it was said, to answer with: a peer may say numbers that it should not."""
        return None if isinstance(self.id, UnsetType) else cast("Id", self.id)

    @property
    def is_request(self) -> bool:
        """Whether it is owed an answer."""
        return self.method is not UNSET and self.id is not UNSET

    @property
    def is_response(self) -> bool:
        """Whether it is the answer to a request."""
        return self.method is UNSET and self.id is not UNSET


_envelopes: Final = msgspec.json.Decoder(Envelope)
EMPTY: Final = Envelope()
"""What is seen of a line that is no message."""


def parse_envelope(line: bytes) -> Envelope:
    """Look at a line from outside; what is no message has no members."""
    try:
        return _envelopes.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return EMPTY


def is_true(raw: Raw | UnsetType | None) -> bool:
    """Whether a JSON value is `true`."""
    return isinstance(raw, Raw) and bytes(raw) == b"true"
