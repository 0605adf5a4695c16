"""The handlers of the user's methods about existing terminals, `_acpterm/terminal/*`.

`launch_methods` has those that create, restart and inspect a terminal. A handler raises `RpcError`
if the terminal's name has no match (-32002) or is ambiguous (-32602): see `UserConnection.entry`.
"""

from collections.abc import Coroutine
from typing import Any

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
    FollowRequest,
    FollowResponse,
    WindowRequest,
)
from acpterm.host.access import Need
from acpterm.host.entry import TerminalEntry
from acpterm.host.terminal_info import exit_info
from acpterm.host.user.attach import attach as attach_window
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.follow import follow as follow_output
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.recording.walk import export as cast_lines

# Bytes of an asciicast in one notification.
_EXPORT_CHUNK_BYTES = 64 * 1024


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
