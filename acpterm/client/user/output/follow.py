"""Follows the complete live output of one of the user's own terminals, for a command in a pipe.

The program blocks while its output is not read (`FollowRequest.hold`), so nothing is lost, unless
the daemon's worker is replaced. After a lost connection, following continues on a new connection
from the position that was reached, so nothing is repeated. With the module `read`, by contrast,
the program does not wait for the reader.
"""

import base64
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from acpterm.acp.user_api import ExitInfo
from acpterm.acp.user_streams import FollowedNotification, FollowRequest, FollowResponse
from acpterm.client.errors import LostError
from acpterm.client.user.client import UserClient

_notifications: Final = msgspec.json.Decoder(FollowedNotification)


class Part(NamedTuple):
    """The next bytes of a terminal's output."""

    data: bytes
    lost: int
    """Number of bytes lost before `data`: 0, unless the daemon's worker was replaced."""


async def follow_output(
    client: UserClient, terminal: str, take: Callable[[Part], Awaitable[object]]
) -> ExitInfo | None:
    """Call `take` with each part of a terminal's output until the program exits; await each call.

    The parts begin at the start of the output. The program blocks while `take` is slow. Return how
    the program exited; None if the terminal was removed before that. Raises `RpcError` if the
    daemon refuses the request, and `DaemonError` if the daemon ends.
    """
    request = FollowRequest(terminal, client.token(), 0, hold=True)
    while True:
        with client.stream("terminal/follow", request, FollowResponse) as stream:
            try:
                async for params in stream:
                    part = _notifications.decode(params)
                    request.since = part.position
                    await take(Part(base64.b64decode(part.data), part.lost))
            except LostError:
                await client.reconnect(stream.endpoint)
            else:
                return stream.response.exit_status
