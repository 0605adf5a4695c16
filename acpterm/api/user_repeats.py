"""The requests on the user's socket that are sent again after the daemon's worker was replaced."""

from typing import Final

from acpterm.client.unanswered import Lost
from acpterm.client.user.requests import REPEATABLE, unknown_outcome
from acpterm.jsonrpc import Id

_PREFIX: Final = "_acpterm/"


class UserRepeats:
    """The requests on the user's socket that have no response yet. Implements `Repeats`.

    `name` is the name of the daemon in error messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._open: dict[Id, _Open] = {}

    def request(self, id_: Id, method: str, line: bytes) -> None:
        """Record the request `id_`, which is about to be sent as `line`."""
        self._open[id_] = _Open(method.removeprefix(_PREFIX), line)

    def cancel(self, id_: Id, line: bytes) -> None:
        """Record that the request `id_` was cancelled by the message in `line`."""
        if (request := self._open.get(id_)) is not None:
            request.lines += line

    def answered(self, id_: Id) -> None:
        """Remove the request `id_`, whose response was received."""
        self._open.pop(id_, None)

    def lost(self) -> Lost:
        """Return the lines to send on the next connection, after the stream was lost.

        Also return the requests that fail because they are not sent again.
        """
        lost = Lost([], [])
        for id_, request in list(self._open.items()):
            request.losses += 1
            if request.losses <= request.repeats:
                lost.lines.append(request.lines)
            else:
                del self._open[id_]
                lost.errors.append((id_, unknown_outcome(self._name, request.method)))
        return lost


class _Open:
    def __init__(self, method: str, line: bytes) -> None:
        self.method = method
        self.lines = line
        self.losses = 0
        self.repeats = float("inf") if method == "events" else REPEATABLE.get(method, 0)
