"""Sends the output of a terminal to one client of the user, live and as bytes.

No byte is sent twice. If the client reads more slowly than the program prints, the ring drops
output, and the next notification has the number of missing bytes. With `hold` the program blocks
instead. If an agent releases the terminal, following continues until all output was sent.

Following runs in the request's task. It ends when the program has ended, or when the request is
cancelled.
"""

import base64
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

import trio

from acpterm.acp.user_streams import FollowedNotification, FollowRequest, FollowResponse
from acpterm.host.entry import TerminalEntry
from acpterm.host.terminal_info import exit_info
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INVALID_PARAMS, REQUEST_CANCELLED, RpcError
from acpterm.terminal.terminal import Terminal

CHUNK_BYTES: Final = 256 * 1024
# The pause between two reads: output that is printed byte by byte is sent together, and each read
# of a flood takes time from the consumer.
POLL_INTERVAL_S: Final = 0.01
# The pause if more than one chunk is unread: no user reads so fast, and sending all of a flood
# would slow the program down.
CATCH_UP_INTERVAL_S: Final = 0.05


async def follow(
    user: UserConnection, entry: TerminalEntry, params: FollowRequest
) -> FollowResponse:
    """Send the retained output of a terminal, from a position or time on, then the live output."""
    # With `stay` until the program has ended. Raises `RpcError`: -32602 if `since` is after the end
    # of the output; -32800 if a later request has the same `holder`, since the client has connected
    # again.
    terminal = entry.terminal
    if params.since_time is not None:
        # Output has a time only once the consumer has processed it.
        await terminal.caught_up()
    terminal.catch_up()
    begin = terminal.ring.end
    if params.since is not None and params.since > begin:
        raise RpcError(
            INVALID_PARAMS,
            f"since {params.since} is after the end of the output, {begin}: "
            "use the position that an earlier answer gave",
        )
    position = _start_position(terminal, params)
    with (
        user.ongoing_request(params.token),
        _replace_earlier(entry, params.holder),
        ExitStack() as held,
    ):
        if params.hold:
            held.callback(user.release_output, terminal)
        while params.stay or position < begin:
            status = await terminal.wait_output(position)
            await user.sender.drain()
            end = terminal.ring.end if params.stay else begin
            if position == end:
                break
            position = _send(user, terminal, params, position, end)
            if params.hold:
                user.hold_output(terminal, position)
            elif position >= begin and status is None and (position == end or not params.times):
                await trio.sleep(POLL_INTERVAL_S if position == end else CATCH_UP_INTERVAL_S)
        return FollowResponse(position, exit_info(terminal.exit))


@contextmanager
def _replace_earlier(entry: TerminalEntry, holder: str | None) -> Iterator[None]:
    """Cancel an earlier request of this holder, and the block when a later one comes."""
    if holder is None:
        yield
        return
    if (earlier := entry.holders.get(holder)) is not None:
        earlier.cancel()
    with trio.CancelScope() as scope:
        entry.holders[holder] = scope
        try:
            yield
        finally:
            if entry.holders.get(holder) is scope:
                del entry.holders[holder]
    if scope.cancelled_caught:
        raise RpcError(REQUEST_CANCELLED, "cancelled: another connection continues this request")


def _start_position(terminal: Terminal, params: FollowRequest) -> int:
    if params.since is not None:
        return params.since
    if params.since_time is not None:
        seconds = params.since_time / 1000 - terminal.started
        return max(terminal.ring.start, terminal.timeline.position_at(seconds))
    return terminal.ring.start


def _send(
    user: UserConnection, terminal: Terminal, params: FollowRequest, position: int, end: int
) -> int:
    """Send a chunk, of one time if `params.times`; return the position just past it."""
    at = None
    timeline = terminal.timeline
    first = max(position, terminal.ring.start)
    if params.times and first < end:
        if first < timeline.known_from:
            # After a take-over these bytes may be readable before the timeline has their times.
            end = min(end, timeline.known_from)
        else:
            found = timeline.slice_at(first)
            end = min(end, found.end)
            at = round(1000 * (terminal.started + found.time))
    part = terminal.ring.read(position, min(CHUNK_BYTES, end - position))
    # If the ring has dropped all bytes before `end`, the bytes read are from after `end`.
    begin = min(part.position, end)
    data = part.data[: end - begin] if part.position < end else b""
    next_position = begin + len(data)
    encoded = base64.b64encode(data).decode()
    user.sender.notify(
        "_acpterm/terminal/followed",
        FollowedNotification(params.token, encoded, next_position, begin - position, at),
    )
    return next_position
