"""The messages of a PTY pool's WebSocket: decodes those of a client, encodes those of the server.

A frame is one JSON object with the member `type`. The member `id` is the id of a terminal on the
WebSocket (`PoolIds`). `parse` raises `InvalidMessageError` for an invalid frame; the text of the
error is sent to the client in `pty:error`.

The names and shapes are those of the document "Terminal Tools Reference": see
docs/internals/compatibility.md.
"""

from typing import Final, Literal, TypeAlias

import msgspec
from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.acp.agent_api import Cells
from acpterm.acp.base import Wire
from acpterm.acp.lenient import decode
from acpterm.acp.pool import PoolTerminal
from acpterm.acp.raw_json import DECODE_ERRORS, text
from acpterm.jsonrpc import RpcError, excerpt

NOT_FOUND: Final = "Session not found"
# An error repeats the id of its message, unless the id has more characters.
_ID_MAX: Final = 200


class AttachMessage(Wire):
    """`pty:attach`: send the history of a terminal, and then its output."""

    id: str


class DetachMessage(Wire):
    """`pty:detach`: send no more output of a terminal."""

    id: str


class InputMessage(Wire):
    """`pty:input`: type into a terminal of the user."""

    id: str
    data: str


class ResizeMessage(Wire):
    """`pty:resize`: set the size of a terminal."""

    id: str
    cols: Cells
    rows: Cells


ClientMessage: TypeAlias = AttachMessage | DetachMessage | InputMessage | ResizeMessage

_TYPES: Final[dict[str, type[ClientMessage]]] = {
    "pty:attach": AttachMessage,
    "pty:detach": DetachMessage,
    "pty:input": InputMessage,
    "pty:resize": ResizeMessage,
}


class AttachedMessage(Struct, tag_field="type", tag="pty:attached"):
    """`pty:attached`: the history of a terminal, which the client shows before its output."""

    id: str
    history: str


class OutputMessage(Struct, tag_field="type", tag="pty:output"):
    """`pty:output`: the next output of a terminal."""

    id: str
    data: str


class ExitMessage(Struct, tag_field="type", tag="pty:exit"):
    """`pty:exit`: the program of a terminal has ended, and all its output was sent."""

    id: str
    exitCode: int  # noqa: N815


class ErrorMessage(Struct, tag_field="type", tag="pty:error"):
    """`pty:error`: what was wrong with a message of the client."""

    id: str
    error: str


class TerminalEvent(Struct, tag_field="type", tag="terminal", omit_defaults=True):
    """`terminal`: a change of a terminal. Only the event `output` has the member `output`."""

    event: Literal["created", "promoted", "closed", "output"]
    terminal: PoolTerminal
    output: str | UnsetType = UNSET


ServerMessage: TypeAlias = (
    AttachedMessage | OutputMessage | ExitMessage | ErrorMessage | TerminalEvent
)

_encoder: Final = msgspec.json.Encoder()


def encode(message: ServerMessage) -> str:
    return _encoder.encode(message).decode()


class InvalidMessageError(Exception):
    """A frame is not a valid message, or what the message requests is not possible."""

    def __init__(self, identifier: str, error: str) -> None:
        super().__init__(error)
        self.id: Final = identifier


class _Envelope(Struct):
    type: Raw | UnsetType = UNSET
    id: Raw | UnsetType = UNSET


_envelopes: Final = msgspec.json.Decoder(_Envelope)


def parse(frame: str | bytes) -> ClientMessage:
    """Decode the message in a frame. Raises `InvalidMessageError` if it is not valid."""
    if isinstance(frame, bytes):
        raise InvalidMessageError("", "the frame is binary: send JSON in text frames")
    try:
        envelope = _envelopes.decode(frame)
    except msgspec.ValidationError:
        expected = "it must be an object with type and id"
        raise InvalidMessageError("", f"the message is {excerpt(frame)}: {expected}") from None
    except DECODE_ERRORS as error:
        raise InvalidMessageError("", f"the message is not JSON: {error}") from None
    identifier = text(envelope.id) or ""
    if len(identifier) > _ID_MAX:
        identifier = ""
    known = ", ".join(_TYPES)
    if isinstance(envelope.type, UnsetType):
        raise InvalidMessageError(identifier, f"type is missing: it must be one of {known}")
    into = _TYPES.get(text(envelope.type) or "")
    if into is None:
        what = excerpt(envelope.type)
        raise InvalidMessageError(identifier, f"type is {what}: it must be one of {known}")
    try:
        return decode(frame.encode(), into, "message")
    except RpcError as error:
        raise InvalidMessageError(identifier, error.message) from None
