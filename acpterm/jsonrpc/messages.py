"""The types of JSON-RPC 2.0 messages.

The rule: a message is exactly one of request, notification, response and error response; any other
line is an `InvalidMessage`. `params` and `result` remain raw JSON, to be decoded by the handler of
the method.
"""

from typing import Final, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.jsonrpc.errors import RpcError

Id: TypeAlias = int | str | None  # an integer has at most 64 bits, including the sign


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """The error of an error response (JSON-RPC 2.0, section 5.1)."""

    code: int
    message: str
    data: Raw | UnsetType = UNSET


class Request(Struct, frozen=True):
    """A message that must be answered, even if its id is null."""

    id: Id
    method: str
    params: Raw | UnsetType = UNSET


class Notification(Struct, frozen=True):
    """A message without an id, which is never answered."""

    method: str
    params: Raw | UnsetType = UNSET


class Response(Struct, frozen=True):
    """A successful response: the result of a request, and the request's id."""

    id: Id
    result: Raw


class ErrorResponse(Struct, frozen=True):
    """A response with an error; its id is null if the other side could not read it."""

    id: Id
    error: ErrorObject


Message: TypeAlias = Request | Notification | Response | ErrorResponse


class InvalidMessage(RpcError):  # noqa: N818 - it is a kind of received message, not only an error
    """A received line that is no valid message; if `is_response`, it gets no response."""

    def __init__(
        self, code: int, message: str, *, request_id: Id = None, is_response: bool = False
    ) -> None:
        super().__init__(code, message)
        self.id: Final = request_id
        self.is_response: Final = is_response
