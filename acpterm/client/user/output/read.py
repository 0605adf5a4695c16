"""A terminal's output as parts, read over a blocking connection.

The daemon waits for no reader: a part says how many bytes before it were not read in time. When the
connection is lost, reading goes on over another one from the position that was reached, so that
nothing comes twice.
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
    """Where to begin: at a position in the stream, at a time, or with the oldest that is kept."""

    position: int | None = None
    time: int | None = None
    """Milliseconds since 1970."""


class TimedPart(NamedTuple):
    """The next bytes of a stream."""

    data: bytes
    position: int
    """The position in the stream behind them."""
    lost: int
    """How many bytes before them are gone."""
    at: int | None
    """When they came, in milliseconds since 1970, if asked for and known."""


def read_output(
    client: BlockingClient,
    terminal: str,
    *,
    since: int | None = None,
    since_time: int | None = None,
    times: bool = False,
    stay: bool = True,
) -> Generator[TimedPart, None, None]:
    """Yield a terminal's output from `since` on, or from the oldest byte, as it comes.

    `since_time`: from what came then or later, in milliseconds since 1970. With `times` parts say
    when they came. Ends when the program has ended; without `stay`, after what there is now. Raises
    `RpcError`, `DaemonError`.
    """
    token = client.token()
    params = FollowRequest(terminal, token, since, since_time=since_time, times=times, stay=stay)
    while True:
        try:
            for raw in client.stream("terminal/follow", params, "terminal/followed"):
                part = _notifications.decode(raw)
                if part.token == token:
                    params.since, params.since_time = part.position, None
                    data = base64.b64decode(part.data)
                    yield TimedPart(data, part.position, part.lost, part.at)
        except LostError as error:
            client.reconnect(error)
        else:
            return
