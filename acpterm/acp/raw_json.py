"""Lenient access to the members, items and strings of raw JSON.

No function raises an error: a value of the wrong type has no members, no items and no text.
"""

from typing import Final

import msgspec
from msgspec import Raw, UnsetType

MEMBERS_DECODER: Final = msgspec.json.Decoder(dict[str, Raw])
ITEMS_DECODER: Final = msgspec.json.Decoder(list[Raw])

# For a value of the wrong type, for half a surrogate pair or no UTF-8, for too deep nesting.
DECODE_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def members(raw: Raw | UnsetType | None) -> dict[str, Raw]:
    """Return the members of a JSON object as raw JSON; an empty dict for any other value."""
    if raw is None or isinstance(raw, UnsetType):
        return {}
    try:
        return MEMBERS_DECODER.decode(raw)
    except DECODE_ERRORS:
        return {}


def items(raw: Raw | UnsetType | None) -> list[Raw]:
    """Return the items of a JSON array as raw JSON; an empty list for any other value."""
    if raw is None or isinstance(raw, UnsetType):
        return []
    try:
        return ITEMS_DECODER.decode(raw)
    except DECODE_ERRORS:
        return []


def text(raw: Raw | UnsetType | None) -> str | None:
    """Return the value of a JSON string; None for any other value."""
    if raw is None or isinstance(raw, UnsetType):
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except DECODE_ERRORS:
        return None
