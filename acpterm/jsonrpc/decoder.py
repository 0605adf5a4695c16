"""Decode a message from one line of JSON.

The rule: a valid line is parsed once. An invalid one is parsed again, slowly, to describe what is
wrong with it and to find the id for the error response.

A message with a method and a null id is a request; only an absent id makes a notification. An
integer may be written in any way that JSON allows (``1.0`` is 1). A message without a method is
treated as a response if it has ``result`` or ``error``, or an id and no ``params``. No error
response is sent for an invalid response, because the other side could take it for the response to a
request of its own that has the same id.
"""

import re
from collections.abc import Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.jsonrpc.errors import INVALID_REQUEST, PARSE_ERROR, excerpt
from acpterm.jsonrpc.messages import (
    ErrorObject,
    ErrorResponse,
    Id,
    InvalidMessage,
    Message,
    Notification,
    Request,
    Response,
)

ID_CHARS_MAX: Final = 1024


class _Envelope(Struct):
    """All members that a message may have."""

    jsonrpc: Literal["2.0"]
    # `float` is here to distinguish 1.0 from 1.5, because JSON has only one type of numbers.
    id: int | float | str | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: ErrorObject | UnsetType = UNSET


_envelopes: Final = msgspec.json.Decoder(_Envelope)
_any_json: Final = msgspec.json.Decoder(Raw)
_members: Final = msgspec.json.Decoder(dict[str, Raw])
_ids: Final = msgspec.json.Decoder(int | float | str | None)
_versions: Final = msgspec.json.Decoder(Literal["2.0"])
_strings: Final = msgspec.json.Decoder(str)
_errors: Final = msgspec.json.Decoder(ErrorObject)
# An escaped backslash; a complete surrogate pair; or, as group 1, half a pair.
_ESCAPE: Final = re.compile(
    rb"\\\\|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(\\u[dD][89a-fA-F][0-9a-fA-F]{2})"
)


def decode(line: bytes) -> Message:
    """Return the message in a line. Raises `InvalidMessage`."""
    # The Raw values refer to `line`, and keep it alive.
    try:
        if not line.isascii():
            str(line, "utf-8")  # the parser does not validate the values that it leaves raw
        envelope = _envelopes.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _invalid_message(line) from None
    message = _message(envelope)
    if message is None:
        raise _invalid_message(line)
    return message


def _message(envelope: _Envelope) -> Message | None:
    """Return the message with these members, if they make a valid one."""
    id_, method = id_of(envelope.id), envelope.method
    result, error = envelope.result, envelope.error
    if isinstance(id_, UnsetType):
        if envelope.id is UNSET and method is not UNSET and result is UNSET and error is UNSET:
            return Notification(method, envelope.params)
    elif isinstance(method, str):
        if result is UNSET and error is UNSET:
            return Request(id_, method, envelope.params)
    elif isinstance(error, UnsetType):
        if not isinstance(result, UnsetType):
            return Response(id_, result)
    elif result is UNSET:
        return ErrorResponse(id_, error)
    return None


def id_of(value: object) -> Id | UnsetType:
    """Return a decoded JSON value as an id; UNSET if it is not a valid id."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -(2**63) <= value < 2**63 else UNSET
    if isinstance(value, str):
        return value if len(value) <= ID_CHARS_MAX else UNSET
    return value if value is None else UNSET


def _invalid_message(line: bytes) -> InvalidMessage:
    try:
        str(line, "utf-8")
        _any_json.decode(line)
        members = _members.decode(line)
    except UnicodeDecodeError as error:
        what = f"byte {error.start + 1} of the message, 0x{line[error.start]:02x}, is not UTF-8"
        return _unreadable(line, f"{what}: a message must be one line of JSON in UTF-8")
    except msgspec.ValidationError:
        what = f"a message must be a JSON object, not {excerpt(line)}"
        if line.lstrip().startswith(b"["):
            expected = "send each message on a line of its own"
            what = f"a batch is not a message: {expected}, not {excerpt(line)}"
        return InvalidMessage(INVALID_REQUEST, what)
    except msgspec.DecodeError as error:
        what = f"the message is not JSON: {excerpt(line)}"
        why = str(error).removeprefix("JSON is malformed: ")
        return _unreadable(line, f"{what}: {why}: a message must be one line of JSON")
    except RecursionError:
        advice = "send it with fewer arrays and objects inside each other"
        what = f"the message is nested too deeply to be read: {excerpt(line)}: {advice}"
        return InvalidMessage(PARSE_ERROR, what)
    value = _decoded(_ids, members["id"]) if "id" in members else UNSET
    what = _describe_invalid_members(members, id_is_bad="id" in members and id_of(value) is UNSET)
    return _invalid_object(INVALID_REQUEST, what, members, value)


def _unreadable(line: bytes, what: str) -> InvalidMessage:
    r"""Return the error for a line that msgspec cannot parse, with its `id` if Python's parser can.

    That parser accepts half a surrogate pair (``\ud83d`` alone), which JavaScript produces if a
    string is cut in the wrong place.
    """
    import json  # noqa: PLC0415  clients that start fast do without it

    try:
        members = json.loads(str(line, "utf-8", "replace"))
    except (ValueError, RecursionError):
        members = None
    if not isinstance(members, dict):
        return InvalidMessage(PARSE_ERROR, what)
    if "not JSON" in what:
        what += r", without NaN, Infinity or half a surrogate pair (\ud800 to \udfff alone)"
    value = members.get("id", UNSET)
    if isinstance(value, str) and any("\ud800" <= character <= "\udfff" for character in value):
        value = UNSET  # an id with a surrogate cannot be encoded in a response
    return _invalid_object(PARSE_ERROR, what, members, value)


def _invalid_object(
    code: int, what: str, members: Mapping[str, object], value: object
) -> InvalidMessage:
    id_ = id_of(value)
    if not {"jsonrpc", "method", "result", "error"} & members.keys():
        id_ = None  # a line of a log, such as {"level":"info","id":1}, must fail no request
    return InvalidMessage(
        code,
        what,
        request_id=None if isinstance(id_, UnsetType) else id_,
        is_response=_is_response(members),
    )


def _is_response(members: Mapping[str, object]) -> bool:
    """Return whether an invalid message with these members was meant as a response."""
    if "method" in members:
        return False
    return bool({"result", "error"} & members.keys()) or (
        "id" in members and "params" not in members
    )


def _describe_invalid_members(members: Mapping[str, Raw], *, id_is_bad: bool) -> str:
    """Say why a JSON object with these members is not a message."""
    kinds = {"method", "result", "error"} & members.keys()
    wrong = ""
    if "jsonrpc" not in members:
        wrong = 'jsonrpc is missing: it must be "2.0"'
    elif _decoded(_versions, members["jsonrpc"]) is UNSET:
        wrong = f'jsonrpc is {excerpt(members["jsonrpc"])}: it must be "2.0"'
    elif id_is_bad:
        expected = f"a string of at most {ID_CHARS_MAX} characters, null, or an integer of 64 bits"
        wrong = f"id is {excerpt(members['id'])}: it must be {expected}"
    elif "method" in members and _decoded(_strings, members["method"]) is UNSET:
        wrong = f"method is {excerpt(members['method'])}: it must be a string"
    elif len(kinds) > 1:
        wrong = (
            f"the message has {' and '.join(sorted(kinds))}: it must have only one of"
            " method (a request), result and error (responses)"
        )
    elif "error" in members and _decoded(_errors, members["error"]) is UNSET:
        expected = "an object with an integer code and a string message"
        wrong = f"error is {excerpt(members['error'])}: it must be {expected}"
    elif kinds:
        wrong = "id is missing: a response must have the id of the request it answers"
    else:
        wrong = "method is missing: a request must have one, a string; a response, a result"
    return wrong


def _decoded(decoder: msgspec.json.Decoder[Any], raw: Raw) -> object:
    """Return the decoded value; UNSET if `decoder` refuses it."""
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        return UNSET


def replace_lone_surrogates(line: bytes) -> bytes:
    r"""Return a line of JSON with each lone surrogate (``\ud83d`` alone) replaced by U+FFFD.

    For a lenient `Peer`: a model sends a message in pieces, cut in the wrong place. A host refuses
    such a line, because a command with a replaced character is not the intended command.
    """
    if b"\\ud" not in line and b"\\uD" not in line:
        return line
    return _ESCAPE.sub(lambda found: rb"\ufffd" if found[1] else found[0], line)
