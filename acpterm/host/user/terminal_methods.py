"""The handlers of the user's methods about existing terminals, `_acpterm/terminal/*`.

`launch_methods` has those that create, restart and inspect a terminal. A handler raises `RpcError`
if the terminal's name has no match (-32002) or is ambiguous (-32602): see `UserConnection.entry`.

`follow` sends the output live and as bytes, no byte twice. If the client reads more slowly than the
program prints, the ring drops output, and the next notification has the number of missing bytes.
With `hold` the program blocks instead. If an agent releases the terminal, following continues until
all output was sent.

Following runs in the request's task. It ends when the program has ended, or when the request is
cancelled.
"""

import base64
from collections.abc import Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final

import trio

from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import (
    ListRequest,
    ListResponse,
    OutputResponse,
    RenameRequest,
    TerminalInfo,
    UserTerminalRequest,
)
from acpterm.acp.user_streams import (
    AttachRequest,
    AttachResponse,
    ExportedNotification,
    ExportRequest,
    FollowedNotification,
    FollowRequest,
    FollowResponse,
    WindowRequest,
)
from acpterm.host.access import Need
from acpterm.host.entry import TerminalEntry
from acpterm.host.terminal_info import exit_info
from acpterm.host.user.attach import attach as attach_window
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INVALID_PARAMS, REQUEST_CANCELLED, RpcError
from acpterm.recording.walk import export as cast_lines
from acpterm.terminal.terminal import Terminal

# Bytes of an asciicast in one notification.
_EXPORT_CHUNK_BYTES = 64 * 1024

CHUNK_BYTES: Final = 256 * 1024
# The pause between two reads: output that is printed byte by byte is sent together, and each read
# of a flood takes time from the consumer.
POLL_INTERVAL_S: Final = 0.01
# The pause if more than one chunk is unread: no user reads so fast, and sending all of a flood
# would slow the program down.
CATCH_UP_INTERVAL_S: Final = 0.05


async def follow_output(
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


async def list_all(user: UserConnection, params: ListRequest) -> ListResponse:
    """`_acpterm/terminal/list`: return all terminals that are not released.

    With `all`, also return released terminals that are retained.
    """
    user.registry.expire()
    await user.background.check_all()
    found = []
    for entry in user.registry:
        if params.all or entry.released_at is None:
            found.append(user.info(entry))
            await trio.lowlevel.checkpoint()
    return ListResponse(found)


def output(
    user: UserConnection, params: UserTerminalRequest
) -> Coroutine[Any, Any, OutputResponse]:
    """`_acpterm/terminal/output`: return the output as text, and the position at its end."""
    return _output(user, user.resolve(params, Need.READ))


async def _output(user: UserConnection, entry: TerminalEntry) -> OutputResponse:
    terminal, view = entry.terminal, entry.terminal.text
    if not terminal.catch_up():
        await terminal.caught_up()
    await user.sender.drain()
    text, truncated = view.text(), view.truncated
    if entry.released_at is not None:
        # The memory of a released terminal is limited: drop the text that was made for this call.
        view.forget()
    return OutputResponse(text, truncated, terminal.ring.end, exit_info(terminal.exit))


def follow(user: UserConnection, params: FollowRequest) -> Coroutine[Any, Any, FollowResponse]:
    """`_acpterm/terminal/follow`: send the output after a position, then live output, as bytes."""
    entry = user.resolve(params, Need.READ)
    if params.hold and not entry.is_users:
        raise RpcError(
            INVALID_PARAMS, f"terminal {entry.id!r} is an agent's: only the user's own can `hold`"
        )
    return follow_output(user, entry, params)


def rename(user: UserConnection, params: RenameRequest) -> TerminalInfo:
    """`_acpterm/terminal/rename`: set or replace the name of a terminal."""
    entry = user.resolve(params, Need.READ)
    user.registry.rename(entry, params.name)
    return user.info(entry)


async def wait(user: UserConnection, params: UserTerminalRequest) -> TerminalInfo:
    """`_acpterm/terminal/wait`: return the terminal once its program has exited."""
    entry = user.resolve(params, Need.READ)
    with user.cancel_on_close():
        await entry.terminal.wait_exited()
    await user.background.check(entry)
    return user.info(entry)


def attach(user: UserConnection, params: AttachRequest) -> Coroutine[Any, Any, AttachResponse]:
    """`_acpterm/terminal/attach`: show a terminal in a window, and keep the window up to date.

    `@last` means the newest terminal that the user has created or taken over. A name means an
    agent's terminal only if no terminal of the user has the name.
    """
    return attach_window(user, user.resolve(params, Need.TYPE), params)


def window(user: UserConnection, params: WindowRequest) -> Empty:
    """`_acpterm/terminal/window`: set the size of an attached window, and repaint the window."""
    entry, attached = user.window(params.token)
    user.windows.change(entry, attached, params.cols, params.rows)
    return Empty()


async def export(user: UserConnection, params: ExportRequest) -> Empty:
    """`_acpterm/terminal/export`: send the retained output, with its times, as an asciicast."""
    entry, token = user.resolve(params, Need.READ), params.token
    with user.ongoing_request(token):
        await entry.terminal.caught_up()
        part: list[bytes] = []
        size = 0
        for line in cast_lines(entry.terminal, command=entry.command):
            part.append(line)
            size += len(line)
            await trio.lowlevel.checkpoint()
            if size >= _EXPORT_CHUNK_BYTES:
                await _send_part(user, token, part)
                part, size = [], 0
        await _send_part(user, token, part)
    return Empty()


async def _send_part(user: UserConnection, token: str, part: list[bytes]) -> None:
    await user.sender.drain()
    lines = b"".join(part).decode()
    user.sender.notify("_acpterm/terminal/exported", ExportedNotification(token, lines))
