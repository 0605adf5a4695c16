"""JSON-RPC 2.0, sans-IO: bytes in, messages out; correlation; cancellation."""

from acpterm.jsonrpc.decoder import decode
from acpterm.jsonrpc.encoder import (
    can_be_said,
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
)
from acpterm.jsonrpc.errors import (
    AUTH_REQUIRED,
    INTERNAL_ERROR,
    INVALID_PARAMS,
    INVALID_REQUEST,
    METHOD_NOT_FOUND,
    PARSE_ERROR,
    REQUEST_CANCELLED,
    RESOURCE_NOT_FOUND,
    LocalProtocolError,
    RpcError,
    quoted,
    shown,
)
from acpterm.jsonrpc.events import (
    CancelReceived,
    ErrorReceived,
    Event,
    NotificationReceived,
    Refused,
    RequestReceived,
    ResponseReceived,
    Stray,
)
from acpterm.jsonrpc.framing import MAX_LINE, LineSplitter, Oversized
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
from acpterm.jsonrpc.peer import Peer
from acpterm.jsonrpc.surrogates import mended

__all__ = [
    "AUTH_REQUIRED",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "MAX_LINE",
    "METHOD_NOT_FOUND",
    "PARSE_ERROR",
    "REQUEST_CANCELLED",
    "RESOURCE_NOT_FOUND",
    "CancelReceived",
    "ErrorObject",
    "ErrorReceived",
    "ErrorResponse",
    "Event",
    "Id",
    "InvalidMessage",
    "LineSplitter",
    "LocalProtocolError",
    "Message",
    "Notification",
    "NotificationReceived",
    "Oversized",
    "Peer",
    "Refused",
    "Request",
    "RequestReceived",
    "Response",
    "ResponseReceived",
    "RpcError",
    "Stray",
    "can_be_said",
    "decode",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_response",
    "mended",
    "quoted",
    "shown",
]
