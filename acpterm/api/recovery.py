"""The interface by which a connection replaces its stream after a loss, and repeats its requests.

`transport` implements it; `connection` uses it.
"""

from typing import NamedTuple, Protocol

from anyio.abc import ByteStream

from acpterm.client.unanswered import Lost
from acpterm.jsonrpc import Id


class Repeats(Protocol):
    """Keeps the requests that have no response yet, to send them again if the stream is lost.

    `Unanswered` implements this for agents, `UserRepeats` for the user.
    """

    def request(self, id_: Id, method: str, line: bytes) -> None:
        """Record the request `id_`, which is about to be sent as `line`."""

    def cancel(self, id_: Id, line: bytes) -> None:
        """Record that the request `id_` was cancelled by the message in `line`."""

    def answered(self, id_: Id) -> object:
        """Remove the request `id_`, whose response was received. The returned value is ignored."""

    def lost(self) -> Lost:
        """Return the lines to send on the next connection, after the stream was lost.

        Also return the requests that fail because they are not sent again.
        """


class Connected(NamedTuple):
    """A stream on which the daemon has answered `initialize`."""

    stream: ByteStream
    received: bytes
    """Bytes received after the response to `initialize`."""


class Recovery(Protocol):
    """Replaces a stream that has ended or broken."""

    @property
    def repeats(self) -> Repeats:
        """The requests to send again after the stream was lost."""

    async def reconnect(self) -> Connected:
        """Return another stream. Raises `ClosedError` if the connection cannot be resumed."""
