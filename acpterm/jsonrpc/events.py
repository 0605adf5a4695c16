"""What may have happened when bytes have arrived.

The rule: an event is a value. It holds what the other side said and nothing of the peer.
"""

from typing import TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.jsonrpc.errors import RpcError
from acpterm.jsonrpc.messages import ErrorObject, ErrorResponse, Id, Response


class RequestReceived(Struct, frozen=True):
    """The other side wants an answer: `Peer.respond` or `Peer.respond_error`, once."""

    id: Id
    method: str
    params: Raw | UnsetType = UNSET


class NotificationReceived(Struct, frozen=True):
    """The other side wants something to be known."""

    method: str
    params: Raw | UnsetType = UNSET


class ResponseReceived(Struct, frozen=True):
    """A request of ours succeeded. It is pending no more."""

    id: int
    result: Raw


class ErrorReceived(Struct, frozen=True):
    """A request of ours failed, or its answer was no answer. It is pending no more."""

    id: int
    error: ErrorObject


class CancelReceived(Struct, frozen=True):
    """The other side no longer wants a request in progress; it is still owed an answer."""

    id: int | str


class UnexpectedResponse(Struct, frozen=True):
    """An answer to nothing that is pending: never asked, or answered before."""

    message: Response | ErrorResponse


class InvalidReceived(Struct, frozen=True):
    """A line that is not a message, or not one which may come now.

    `reply` is the line to send for it, None if it must not be answered.
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
