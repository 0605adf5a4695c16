"""What a JSON-RPC 2.0 message is.

The rule: a message is exactly one of request, notification, response and error response;
anything else is an `InvalidMessage`. `params` and `result` stay the JSON they came as: what
they mean is for whoever knows the method.
"""

from typing import Final, TypeAlias

from msgspec import UNSET, Raw, Struct, UnsetType

from acpterm.jsonrpc.errors import RpcError

Id: TypeAlias = int | str | None
"""What ACP v1's ``RequestId`` allows; an integer has 64 bits, sign included."""


class ErrorObject(Struct, frozen=True, omit_defaults=True):
    """JSON-RPC 2.0, section 5.1."""

    code: int
    message: str
    data: Raw | UnsetType = UNSET


class Request(Struct, frozen=True):
    """Something that is owed an answer, whatever its id: a null one too."""

    id: Id
    method: str
    params: Raw | UnsetType = UNSET


class Notification(Struct, frozen=True):
    """Something without an id, which is never answered."""

    method: str
    params: Raw | UnsetType = UNSET


class Response(Struct, frozen=True):
    """A result."""

    id: Id
    result: Raw


class ErrorResponse(Struct, frozen=True):
    """A failure. The id is null when the other side could not read ours."""

    id: Id
    error: ErrorObject


Message: TypeAlias = Request | Notification | Response | ErrorResponse


class InvalidMessage(RpcError):  # noqa: N818 - it is what was received, as well as an error
    """A line that is no message.

    `id` is the one to answer with, null when it could not be read. `is_response` says that
    the line was meant as a response: it must not be answered at all.
    """

    def __init__(
        self, code: int, message: str, *, request_id: Id = None, is_response: bool = False
    ) -> None:
        super().__init__(code, message)
        self.id: Final = request_id
        self.is_response: Final = is_response
