r"""Encode a message as one line of JSON.

The rule: the result is one line with a single ``\n``, at its end, even if the message contains a
`msgspec.Raw` (JSON that is already encoded) with newlines. A value that cannot be encoded raises an
error of msgspec or of Python, such as `TypeError`, or `UnicodeEncodeError` for half a surrogate
pair.
"""

import os
from typing import Any, Final

import msgspec
from msgspec import UNSET, Struct

from acpterm.jsonrpc.errors import RpcError
from acpterm.jsonrpc.messages import Id

_encoder: Final = msgspec.json.Encoder()


class _Request(Struct):
    jsonrpc: str
    id: Id
    method: str
    params: Any


class _Notification(Struct):
    jsonrpc: str
    method: str
    params: Any


class _Response(Struct):
    jsonrpc: str
    id: Id
    result: Any


class _Error(Struct):
    code: int
    message: str
    data: Any


class _ErrorResponse(Struct):
    jsonrpc: str
    id: Id
    error: _Error


def encode_request(request_id: Id, method: str, params: Any = UNSET) -> bytes:
    """Return the line of a request. `params` is a Struct, Raw or any JSON value."""
    return _line(_Request("2.0", request_id, method, params))


def encode_notification(method: str, params: Any = UNSET) -> bytes:
    return _line(_Notification("2.0", method, params))


def encode_response(request_id: Id, result: Any) -> bytes:
    return _line(_Response("2.0", request_id, result))


def encode_error(request_id: Id, error: RpcError) -> bytes:
    # Messages quote file names, which contain surrogates if they are not UTF-8.
    message = error.message.encode("utf-8", "backslashreplace").decode("utf-8")
    return _line(_ErrorResponse("2.0", request_id, _Error(error.code, message, error.data)))


def readable(path: str) -> str:
    """Return `path` for JSON: with U+FFFD for each byte that is not UTF-8, which Python escapes."""
    return os.fsencode(path).decode(errors="replace")


def is_utf8_encodable(value: str) -> bool:
    # A file name that is not UTF-8 has surrogates.
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _line(message: Struct) -> bytes:
    # Not `encode`: msgspec 0.22 crashes there if there is no memory, and here raises MemoryError.
    line = bytearray()
    _encoder.encode_into(message, line)
    line += b"\n"
    if line.find(b"\n") != len(line) - 1:
        # Raw values that were not encoded here may extend over several lines. A newline in JSON is
        # never part of a string, so a space is equivalent.
        line = line[:-1].replace(b"\n", b" ") + b"\n"
    return bytes(line)
