"""Reads a terminal's output as bytes over a blocking connection, without trio.

The program does not wait for a slow reader: each part of the output says how many bytes before it
were lost because they were not read in time. After a lost connection, reading continues on a new
connection from the position that was reached, so nothing is repeated.
"""

import base64
from collections.abc import Generator
from typing import Final, NamedTuple

import msgspec

from acpterm.acp.user_streams import FollowedNotification, FollowRequest
from acpterm.commands.blocking_client import BlockingClient
from acpterm.link.errors import LostError

_notifications: Final = msgspec.json.Decoder(FollowedNotification)


class Since(NamedTuple):
    """The start of the output to read: a position or a time; if both are None, the oldest byte."""

    position: int | None = None
    """Bytes from the beginning of the terminal's output."""
    time: int | None = None
    """Milliseconds since 1970."""


class TimedPart(NamedTuple):
    """The next bytes of a terminal's output, with their position and time."""

    data: bytes
    position: int
    """The position in the output just past `data`."""
    lost: int
    """Number of bytes lost before `data`."""
    at: int | None
    """When `data` was printed, in milliseconds since 1970; None if not requested or unknown."""


def read_output(
    client: BlockingClient,
    terminal: str,
    *,
    since: int | None = None,
    since_time: int | None = None,
    times: bool = False,
    stay: bool = True,
) -> Generator[TimedPart, None, None]:
    """Yield output from a position or time on; if `stay`, live output too."""
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
