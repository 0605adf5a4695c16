"""Errors that are sent to the other side, and the excerpts of values in their messages.

The rule: a message says what was wrong, with which value, and what would be right, because
agents show their model the message and nothing else.
"""

from typing import Any, Final

from msgspec import UNSET, Raw

PARSE_ERROR: Final = -32700
INVALID_REQUEST: Final = -32600
METHOD_NOT_FOUND: Final = -32601
INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
REQUEST_CANCELLED: Final = -32800
AUTH_REQUIRED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002
UNSUPPORTED_VERSION: Final = -32022

EXCERPT_MAX: Final = 80  # characters of a JSON value in an error message
QUOTE_MAX: Final = 500  # characters of a string, usually a path


class RpcError(Exception):
    """The failure of a request, sent as a response or received; `data` is any JSON value."""

    def __init__(self, code: int, message: str, data: Any = UNSET) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.data: Final = data

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.code}, {self.message!r})"


class LocalProtocolError(Exception):
    """The caller of `Peer` tried to respond to a request that is not in progress."""


def excerpt(value: bytes | bytearray | Raw | str) -> str:
    """Return the beginning of JSON text, as one line of at most `EXCERPT_MAX` characters."""
    if not isinstance(value, str):
        # A character has at most four bytes: decode only the beginning of a message of 10 MB.
        value = str(memoryview(value)[: 4 * EXCERPT_MAX + 4], "utf-8", "replace")
    # Cut before `split()`, because the value may be long and only its head is needed.
    text = " ".join(value[: 4 * EXCERPT_MAX + 4].split())
    text = "".join(c if c.isprintable() else "\ufffd" for c in text[: EXCERPT_MAX + 1])
    return text if len(text) <= EXCERPT_MAX else text[: EXCERPT_MAX - 1] + "…"


def quote(value: str, limit: int = QUOTE_MAX) -> str:
    """Return `value` in quotes, as one line, cut off after `limit` characters."""
    return repr(value) if len(value) <= limit else f"{value[: limit - 1]!r}…"
