"""A terminal's bytes as they come, for a front end that shows or searches them.

The rule: nothing twice, and what is missing is said. What the ring has dropped before it was told
is counted; that is so when the front end does not read as fast as the program prints, which holds
up nobody. The terminal is followed itself and not its entry: an agent that releases it right after
its end takes nothing of it away.

The task is that of the request: it ends with the program's end, or when it is cancelled.
"""

import base64
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import trio

from acpterm.acp.user_streams import FollowedNotification, FollowRequest, FollowResponse
from acpterm.host.terminal_info import exit_info
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.terminal.terminal import Terminal

CHUNK_BYTES: Final = 256 * 1024
# Seconds between two looks: what comes one byte at a time is told together, and in a flood more
# looks would cost the terminal's own reader.
POLL_INTERVAL_S: Final = 0.01
# The same where more has come than is told at once: nobody reads so fast, and the program is not to
# wait for it.
CATCH_UP_S: Final = 0.05


async def follow(user: UserConnection, terminal: Terminal, params: FollowRequest) -> FollowResponse:
    """Tell what comes after `since`, until the end. Raises `RpcError` (-32602) for a bad one."""
    if params.since_time is not None:
        # The times of output that waits to be consumed are not noted yet.
        await terminal.caught_up()
    begin = terminal.ring.end
    if params.since is not None and params.since > begin:
        raise RpcError(
            INVALID_PARAMS,
            f"since {params.since} is after the end of the output, {begin}: "
            "use the position that an earlier answer gave",
        )
    position = _start(terminal, params)
    with user.ongoing_request(params.token), _is_held(user, terminal, hold=params.hold):
        while True:
            await user.sender.drain()
            # In this order: what there is at the end is all that there will be.
            ended = terminal.exit is not None
            end = terminal.ring.end if params.stay else begin
            if position < end:
                position = _send(user, terminal, params, position, end)
                if params.hold:
                    user.pause_reader(terminal, position)
                elif position >= begin and not ended and (position == end or not params.times):
                    await trio.sleep(POLL_INTERVAL_S if position == end else CATCH_UP_S)
            elif ended or not params.stay:
                return FollowResponse(position, exit_info(terminal.exit))
            else:
                await terminal.wait_changed()


def _start(terminal: Terminal, params: FollowRequest) -> int:
    if params.since is not None:
        return params.since
    if params.since_time is not None:
        seconds = params.since_time / 1000 - terminal.started
        return max(terminal.ring.start, terminal.timeline.position_at(seconds))
    return terminal.ring.start


@contextmanager
def _is_held(user: UserConnection, terminal: Terminal, *, hold: bool) -> Iterator[None]:
    try:
        yield
    finally:
        if hold:
            user.resume_reader(terminal)


def _send(
    user: UserConnection, terminal: Terminal, params: FollowRequest, position: int, end: int
) -> int:
    """Tell the next part of what there is from `position` to `end`: where to go on."""
    at = None
    timeline = terminal.timeline
    first = max(position, terminal.ring.start)
    if params.times and first < end:
        if first < timeline.known_from:
            # These bytes may not be in the timeline yet, but later ones are: `SharedRing.end`.
            end = min(end, timeline.known_from)
        else:
            found = timeline.slice_at(first)
            end = min(end, found.end)
            at = round(1000 * (terminal.started + found.time))
    part = terminal.ring.read(position, min(CHUNK_BYTES, end - position))
    # All of it may be gone, and what is read then came later.
    begin = min(part.position, end)
    data = part.data[: end - begin] if part.position < end else b""
    behind = begin + len(data)
    encoded = base64.b64encode(data).decode()
    user.sender.notify(
        "_acpterm/terminal/followed",
        FollowedNotification(params.token, encoded, behind, begin - position, at),
    )
    return behind
