"""The methods of a connection to the user's socket that was refused: each answers with the reason.

A closed connection would not say why.
"""

from collections.abc import Iterator, Mapping
from typing import NoReturn

from acpterm.acp.user_api import NoParams
from acpterm.host.server.dispatch import Method, MethodTable
from acpterm.jsonrpc import INVALID_REQUEST, RpcError


def refusing(reason: str) -> MethodTable:
    """Return methods that all fail for `reason`."""

    def refuse(*_: object) -> NoReturn:
        raise RpcError(INVALID_REQUEST, f"this is the user's endpoint: {reason}")

    return MethodTable(_All(Method(NoParams, refuse)), {})


class _All(Mapping[str, Method]):
    """The same method under every name."""

    def __init__(self, method: Method) -> None:
        self._method = method

    def __getitem__(self, name: str) -> Method:
        return self._method

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
