"""The exceptions of the Python API. All of them are subclasses of `AcptermError`."""

from typing import Any, Final

from msgspec import UNSET

from acpterm.jsonrpc import INVALID_REQUEST, RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.endpoint import Endpoint
from acpterm.link.errors import AcptermError

__all__ = [
    "AcptermError",
    "ClosedError",
    "CommandRefused",
    "DaemonError",
    "RequestError",
    "create_error",
    "request_error",
]


class ClosedError(AcptermError):
    """The connection has ended, so no request can succeed any more; the message says why."""


class RequestError(AcptermError):
    """The daemon has answered a request with an error. The connection can still be used.

    `code` is the error's JSON-RPC code, and `data` its details, if any.
    """

    def __init__(self, code: int, message: str, data: Any = UNSET) -> None:
        super().__init__(message)
        self.code: Final = code
        self.message: Final = message
        self.data: Final = data


class CommandRefused(RequestError):  # noqa: N818  reads as what has happened
    """The policy or the user has refused an agent's command; the message says why.

    `level` is the level of the command, if the daemon has reported it.
    """

    def __init__(
        self, code: int, message: str, data: Any = UNSET, level: str | None = None
    ) -> None:
        super().__init__(code, message, data)
        self.level: Final = level


def request_error(endpoint: Endpoint, error: RpcError) -> RequestError | ClosedError:
    """Return the exception for a request that got the response `error`, or none."""
    if error is endpoint.closed:
        return ClosedError(error.message)
    return RequestError(error.code, error.message, error.data)


def create_error(error: RequestError) -> RequestError:
    """Return the exception to raise for a failed request to create a terminal or check a command.

    `error` is the exception of the request. If the daemon has refused the command, return a
    `CommandRefused`; otherwise, return `error` itself.
    """
    if error.code != INVALID_REQUEST:
        return error
    level = error.data.get("level") if isinstance(error.data, dict) else None
    return CommandRefused(error.code, error.message, error.data, level)
