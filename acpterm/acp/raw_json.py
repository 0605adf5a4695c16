"""JSON that is looked into member by member, each of which stays as it came.

The rule: what is not of the kind that is looked for has no members, no items and no text.
"""

from typing import Final

import msgspec
from msgspec import Raw, UnsetType

_members: Final = msgspec.json.Decoder(dict[str, Raw])
_items: Final = msgspec.json.Decoder(list[Raw])
_BAD: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)


def members(raw: Raw | UnsetType | None) -> dict[str, Raw]:
    """Give the members of a JSON object, each as it came; none of anything else."""
    if raw is None or isinstance(raw, UnsetType):
        return {}
    try:
        return _members.decode(raw)
    except _BAD:
        return {}


def items(raw: Raw | UnsetType | None) -> list[Raw]:
    """Give the items of a JSON array, each as it came; none of anything else."""
    if raw is None or isinstance(raw, UnsetType):
        return []
    try:
        return _items.decode(raw)
    except _BAD:
        return []


def text(raw: Raw | UnsetType | None) -> str | None:
    """Give the string that a JSON value is; None if it is none."""
    if raw is None or isinstance(raw, UnsetType):
        return None
    try:
        return msgspec.json.decode(raw, type=str)
    except _BAD:
        return None
