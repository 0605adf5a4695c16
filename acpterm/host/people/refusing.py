"""Why the person's socket serves no agent: what one that tries is told.

Whoever runs in a terminal of an agent's is known by the terminal's processes. That keeps an agent
from using the person's commands by the way; it is no wall between two programs of one user.
"""

from collections.abc import Iterator, Mapping
from typing import NoReturn

from acpterm.acp.person import Nothing
from acpterm.host.method import Method, Methods
from acpterm.jsonrpc import INVALID_REQUEST, RpcError


def refusing(terminal: str | None) -> Methods:
    """Return methods of which each is refused to a program in this terminal.

    None: the process that connected has ended, and what has its connection now may be anything.
    """
    if terminal is None:
        why = (
            "this is the user's endpoint, and the process that connected to it has ended, so that "
            "it cannot be seen whose it was: connect from a process that stays"
        )
    else:
        why = (
            f"this is the person's endpoint, and you run in an agent's terminal ({terminal}): ask "
            "the person, or use the terminal methods of your own connection"
        )

    def refuse(*_: object) -> NoReturn:
        raise RpcError(INVALID_REQUEST, why)

    return Methods(_All(Method(Nothing, refuse)), {})


class _All(Mapping[str, Method]):
    """The same for every name."""

    def __init__(self, method: Method) -> None:
        self._method = method

    def __getitem__(self, name: str) -> Method:
        return self._method

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
