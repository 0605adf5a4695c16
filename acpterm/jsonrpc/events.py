"""The events that `Peer.receive_data` returns.

The rule: an event is a value. It contains what the other side sent, and no reference to the peer.
"""

from typing import TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.jsonrpc.errors import RpcError
from acpterm.jsonrpc.messages import ErrorObject, ErrorResponse, Id, Response


class RequestReceived(Struct, frozen=True):
    """A request, to be answered once: by `Peer.respond` or `Peer.respond_error`."""

    id: Id
    method: str
    params: Raw | UnsetType = UNSET


class NotificationReceived(Struct, frozen=True):
    """A notification."""

    method: str
    params: Raw | UnsetType = UNSET


class ResponseReceived(Struct, frozen=True):
    """A request of this side succeeded, and is no longer pending."""

    id: int
    result: Raw


class ErrorReceived(Struct, frozen=True):
    """A request of this side failed, or its response was invalid. It is no longer pending."""

    id: int
    error: ErrorObject


class CancelReceived(Struct, frozen=True):
    """The other side has cancelled a request in progress, which must still be answered."""

    id: int | str


class UnexpectedResponse(Struct, frozen=True):
    """A response to no pending request: to one never sent, or already answered."""

    message: Response | ErrorResponse


class InvalidReceived(Struct, frozen=True):
    """A line that is not a message, or one that is not allowed in this state.

    `reply` is the line to send in response; None if the line must not be answered.
    """

    reply: bytes | None
    error: RpcError


Event: TypeAlias = (
    RequestReceived
    | NotificationReceived
    | ResponseReceived
    | ErrorReceived
    | CancelReceived
    | UnexpectedResponse
    | InvalidReceived
)
