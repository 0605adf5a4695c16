"""A message out of one line of JSON.

The rule: a good line is parsed once. A bad one is looked at again, slowly, to say what is
wrong with it and to find the id which the answer should have.

A null id with a method is a request; only an absent one makes a notification. An integer may
be written as JSON allows (``1.0`` is 1). Something without a method is a response as soon as
it has ``result`` or ``error``, or an id and no ``params``: it is never answered, since the
answer would hit a request of the other side which happens to have the same id.
"""

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


class _Envelope(Struct):
    """Every member that any message has."""

    jsonrpc: Literal["2.0"]
    # `float` only so that 1.0 can be told from 1.5: JSON has one kind of number.
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


def decode(line: bytes) -> Message:
    """Return the message in a line.

    The Raw values in it refer to `line`, and keep it alive. Raises InvalidMessage.
    """
    try:
        if not line.isascii():
            str(line, "utf-8")  # the parser does not look inside what it leaves raw
        envelope = _envelopes.decode(line)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        raise _what_is_wrong(line) from None
    message = _message(envelope)
    if message is None:
        raise _what_is_wrong(line)
    return message


def _message(envelope: _Envelope) -> Message | None:
    """Return the message with these members; None if they do not make one."""
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
    """Return the id which a decoded JSON value is; UNSET if it is none."""
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int) and not isinstance(value, bool):
        return value if -(2**63) <= value < 2**63 else UNSET
    return value if value is None or isinstance(value, str) else UNSET


def _what_is_wrong(line: bytes) -> InvalidMessage:
    """Return the refusal of a line that is no message."""
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
            right = "send each message on a line of its own"
            what = f"batches are not part of ACP v1: {right}, not {excerpt(line)}"
        return InvalidMessage(INVALID_REQUEST, what)
    except msgspec.DecodeError as error:
        what = f"the message is not JSON: {excerpt(line)}"
        why = str(error).removeprefix("JSON is malformed: ")
        return _unreadable(line, f"{what}: {why}: a message must be one line of JSON")
    except RecursionError:
        right = "send it with fewer arrays and objects inside each other"
        what = f"the message is nested too deeply to be read: {excerpt(line)}: {right}"
        return InvalidMessage(PARSE_ERROR, what)
    value = _decoded(_ids, members["id"]) if "id" in members else UNSET
    what = _what_is_wrong_inside(members, id_is_bad="id" in members and id_of(value) is UNSET)
    return _refusal(INVALID_REQUEST, what, members, value)


def _unreadable(line: bytes, what: str) -> InvalidMessage:
    r"""Return the refusal of a line that is not JSON, with its id if that can be made out.

    Python's own parser takes what ours does not: half a surrogate pair (``\ud83d`` alone),
    which is what JavaScript makes of a string cut in the wrong place.
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
        value = UNSET  # an answer could not have such an id
    return _refusal(PARSE_ERROR, what, members, value)


def _refusal(code: int, what: str, members: Mapping[str, object], value: object) -> InvalidMessage:
    """Return the refusal of an object, given its members and its decoded id."""
    id_ = id_of(value)
    return InvalidMessage(
        code,
        what,
        request_id=None if isinstance(id_, UnsetType) else id_,
        is_response=_is_response(members),
    )


def _is_response(members: Mapping[str, object]) -> bool:
    """Say whether something that is no message was meant as a response."""
    if "method" in members:
        return False
    return bool({"result", "error"} & members.keys()) or (
        "id" in members and "params" not in members
    )


def _what_is_wrong_inside(members: Mapping[str, Raw], *, id_is_bad: bool) -> str:
    """Say what keeps an object with these members from being a message."""
    kinds = {"method", "result", "error"} & members.keys()
    wrong = ""
    if "jsonrpc" not in members:
        wrong = 'jsonrpc is missing: it must be "2.0"'
    elif _decoded(_versions, members["jsonrpc"]) is UNSET:
        wrong = f'jsonrpc is {excerpt(members["jsonrpc"])}: it must be "2.0"'
    elif id_is_bad:
        right = "a string, null, or an integer of 64 bits"
        wrong = f"id is {excerpt(members['id'])}: it must be {right}"
    elif "method" in members and _decoded(_strings, members["method"]) is UNSET:
        wrong = f"method is {excerpt(members['method'])}: it must be a string"
    elif len(kinds) > 1:
        wrong = (
            f"the message has {' and '.join(sorted(kinds))}: it must have only one of"
            " method (a request), result and error (responses)"
        )
    elif "error" in members and _decoded(_errors, members["error"]) is UNSET:
        right = "an object with an integer code and a string message"
        wrong = f"error is {excerpt(members['error'])}: it must be {right}"
    elif kinds:
        wrong = "id is missing: a response must have the id of the request it answers"
    else:
        wrong = "method is missing: a request must have one, a string; a response, a result"
    return wrong


def _decoded(decoder: msgspec.json.Decoder[Any], raw: Raw) -> object:
    """Return what a member decodes to; UNSET if it is of another type."""
    try:
        return decoder.decode(raw)
    except msgspec.DecodeError:
        return UNSET
