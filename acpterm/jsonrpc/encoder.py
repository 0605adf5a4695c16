r"""One line of JSON out of a message.

The rule: what leaves is one line, with one ``\n``, at its end, whatever was put into it.
"""

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
    """Return a request as a line. `params` is a Struct, Raw or any JSON value; UNSET for none."""
    return _line(_Request("2.0", request_id, method, params))


def encode_notification(method: str, params: Any = UNSET) -> bytes:
    """Return a notification as a line. `params` as for a request."""
    return _line(_Notification("2.0", method, params))


def encode_response(request_id: Id, result: Any) -> bytes:
    """Return a result as a line. `result` is a Struct, Raw or any JSON value."""
    return _line(_Response("2.0", request_id, result))


def encode_error(request_id: Id, error: RpcError) -> bytes:
    """Return a failure as a line."""
    # File names that are not UTF-8 hold surrogates, and messages quote file names.
    message = error.message.encode("utf-8", "backslashreplace").decode("utf-8")
    return _line(_ErrorResponse("2.0", request_id, _Error(error.code, message, error.data)))


def is_utf8_encodable(value: str) -> bool:
    """Whether JSON can hold a string: a name of a file that is not UTF-8 holds surrogates."""
    try:
        value.encode()
    except UnicodeEncodeError:
        return False
    return True


def _line(message: Struct) -> bytes:
    line = _encoder.encode_lines([message])
    if line.find(b"\n") != len(line) - 1:
        # Raw values from elsewhere may be laid out over several lines. Within JSON a newline
        # is never part of a string, so a space means the same.
        line = line[:-1].replace(b"\n", b" ") + b"\n"
    return line
