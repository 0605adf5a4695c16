"""JSON-RPC 2.0 without I/O: framing, messages, matching of responses, cancellation.

- `peer`: one end of a connection; matches requests and responses, and uses the modules below;
- `framing`: splits a stream of bytes into lines;
- `messages`: the types of messages;
- `decoder`, `encoder`: convert between a line of JSON and a message;
- `errors`: errors that are sent to the other side.
"""

from acpterm.jsonrpc.decoder import decode, replace_lone_surrogates
from acpterm.jsonrpc.encoder import (
    encode_error,
    encode_notification,
    encode_request,
    encode_response,
    is_utf8_encodable,
    readable,
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
    excerpt,
    quote,
)
from acpterm.jsonrpc.framing import MESSAGE_BYTES_MAX, LineSplitter, Oversized
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
from acpterm.jsonrpc.peer import (
    CancelReceived,
    ErrorReceived,
    Event,
    InvalidReceived,
    NotificationReceived,
    Peer,
    RequestReceived,
    ResponseReceived,
    UnexpectedResponse,
)

__all__ = [
    "AUTH_REQUIRED",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "MESSAGE_BYTES_MAX",
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
    "InvalidReceived",
    "LineSplitter",
    "LocalProtocolError",
    "Message",
    "Notification",
    "NotificationReceived",
    "Oversized",
    "Peer",
    "Request",
    "RequestReceived",
    "Response",
    "ResponseReceived",
    "RpcError",
    "UnexpectedResponse",
    "decode",
    "encode_error",
    "encode_notification",
    "encode_request",
    "encode_response",
    "excerpt",
    "is_utf8_encodable",
    "quote",
    "readable",
    "replace_lone_surrogates",
]
