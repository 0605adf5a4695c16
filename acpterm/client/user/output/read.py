"""A terminal's output as parts, read over a blocking connection.

The daemon waits for no reader: each part says how many bytes before it were not read in time. After
a lost connection, reading continues on a new one from the position that was reached, so nothing is
repeated.
"""

import base64
from collections.abc import Generator
from typing import Final, NamedTuple

import msgspec

from acpterm.acp.user_streams import FollowedNotification, FollowRequest
from acpterm.client.errors import LostError
from acpterm.client.user.blocking_client import BlockingClient

_notifications: Final = msgspec.json.Decoder(FollowedNotification)


class Since(NamedTuple):
    """Where to begin: at a position in the stream, at a time, or else at the oldest kept byte."""

    position: int | None = None
    time: int | None = None
    """Milliseconds since 1970."""


class TimedPart(NamedTuple):
    """The next bytes of a stream."""

    data: bytes
    position: int
    """The position in the stream after them."""
    lost: int
    """Number of bytes lost before them."""
    at: int | None
    """When they were printed, in milliseconds since 1970; None if not requested or not known."""


def read_output(
    client: BlockingClient,
    terminal: str,
    *,
    since: int | None = None,
    since_time: int | None = None,
    times: bool = False,
    stay: bool = True,
) -> Generator[TimedPart, None, None]:
    """Yield a terminal's output from position `since` on, or from the oldest kept byte.

    With `since_time` (milliseconds since 1970), yield what was printed then or later. With `times`,
    parts have times. With `stay`, yield live output too until the program has ended; otherwise
    stop after the present output. Raises `RpcError`, `DaemonError`.
    """
    params = FollowRequest(
        terminal, client.token(), since, since_time=since_time, times=times, stay=stay
    )
    while True:
        try:
            for raw in client.stream("terminal/follow", params):
                part = _notifications.decode(raw)
                params.since, params.since_time = part.position, None
                yield TimedPart(base64.b64decode(part.data), part.position, part.lost, part.at)
        except LostError as error:
            client.reconnect(error)
        else:
            return
