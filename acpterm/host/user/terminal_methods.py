"""The handlers of the user's methods about existing terminals, `_acpterm/terminal/*`.

`launch_methods` has those that create, restart and inspect a terminal. A handler raises `RpcError`
if the terminal's name has no match (-32002) or is ambiguous (-32602): see `UserConnection.entry`.
"""

import base64
import binascii
from collections.abc import Coroutine
from typing import Any

import trio

from acpterm.acp.agent_api import ReadResponse, WriteResponse
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import (
    GetRequest,
    ListRequest,
    ListResponse,
    OutputResponse,
    RenameRequest,
    ScreenResponse,
    TerminalInfo,
    UserReadRequest,
    UserResizeRequest,
    UserSignalRequest,
    UserTerminalRequest,
    UserWriteRequest,
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
from acpterm.host import terminal_ops
from acpterm.host.entry import TerminalEntry
from acpterm.host.recording import asciicast
from acpterm.host.terminal_info import exit_info
from acpterm.host.user.attach import attach as attach_window
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.follow import follow as follow_output
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.terminal.status import EndedBy

# Bytes of an asciicast in one notification.
_EXPORT_CHUNK_BYTES = 64 * 1024


async def list_all(user: UserConnection, params: ListRequest) -> ListResponse:
    """`_acpterm/terminal/list`: return all terminals that are not released.

    With `all`, also return released terminals that are retained.
    """
    user.host.registry.expire()
    await user.host.background.check_all()
    found = []
    for entry in user.host.registry:
        if params.all or entry.released_at is None:
            found.append(user.host.terminal_info(entry))
            await trio.lowlevel.checkpoint()
    return ListResponse(found)


async def get(user: UserConnection, params: GetRequest) -> TerminalInfo:
    """`_acpterm/terminal/get`: return one terminal."""
    entry = user.entry(params.terminal_id, own=params.own)
    if params.background:
        return await terminal_ops.info_with_background(user.host, entry)
    await user.host.background.check(entry)
    return user.host.terminal_info(entry)


async def read(user: UserConnection, params: UserReadRequest) -> ReadResponse:
    """`_acpterm/terminal/read`: return the output after a position.

    If there is no such output yet, wait for output up to `waitMs` milliseconds.
    """
    entry = user.entry(params.terminal_id)
    with user.cancel_on_close():
        return await terminal_ops.read(user, entry, params)


def output(
    user: UserConnection, params: UserTerminalRequest
) -> Coroutine[Any, Any, OutputResponse]:
    """`_acpterm/terminal/output`: return the output as text, and the position at its end."""
    return _output(user, user.entry(params.terminal_id))


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
    """`_acpterm/terminal/follow`: send the output after a position, then live output, as bytes.

    Raises `RpcError`: the errors of `user.follow.follow`, and -32602 if `hold` is set and an agent
    owns the terminal.
    """
    entry = user.entry(params.terminal_id)
    if params.hold and not entry.is_users:
        raise RpcError(
            INVALID_PARAMS, f"terminal {entry.id!r} is an agent's: only the user's own can `hold`"
        )
    return follow_output(user, entry, params)


def write(user: UserConnection, params: UserWriteRequest) -> Coroutine[Any, Any, WriteResponse]:
    """`_acpterm/terminal/write`: write keyboard input; respond once the input was written.

    If a cluster has not started the program yet, respond at once. `@last` means the newest terminal
    that the user has created or taken over. A name means an agent's terminal only if no terminal of
    the user has the name.
    """
    entry = user.entry(params.terminal_id, own=True)
    return write_once(user, entry, params, "user")


def write_once(
    user: UserConnection,
    entry: TerminalEntry,
    params: UserWriteRequest,
    by: str,
    share: str | None = None,
) -> Coroutine[Any, Any, WriteResponse]:
    """Type the input of a request, unless it repeats the last one: for the audit log, who did."""
    data = _input_of(params)
    if params.token is not None and params.token == entry.write_token:
        return _written(data)
    user.host.trail.input(entry, by, data, share)
    writing = terminal_ops.write(entry.terminal, data)
    entry.write_token = params.token or entry.write_token
    return writing


async def _written(data: bytes) -> WriteResponse:
    await trio.lowlevel.checkpoint()
    return WriteResponse(len(data))


def _input_of(params: UserWriteRequest) -> bytes:
    """Return the bytes that a write request contains.

    Raises `RpcError` (-32602) if the request declares `data` as base64, but `data` is not base64.
    """
    if params.encoding is None:
        return params.data.encode()
    try:
        return base64.b64decode(params.data, validate=True)
    except (binascii.Error, ValueError) as error:
        raise RpcError(INVALID_PARAMS, f"data is not base64: {error}") from error


def resize(user: UserConnection, params: UserResizeRequest) -> Empty:
    """`_acpterm/terminal/resize`: set the size that a terminal has while no window is attached."""
    entry = user.entry(params.terminal_id)
    return terminal_ops.resize(user.host.windows, entry, params.cols, params.rows)


def rename(user: UserConnection, params: RenameRequest) -> TerminalInfo:
    """`_acpterm/terminal/rename`: set or replace the name of a terminal.

    Raises `RpcError` (-32602) if the name is not allowed or not available (`registry.rename`).
    """
    entry = user.entry(params.terminal_id)
    user.host.registry.rename(entry, params.name)
    return user.host.terminal_info(entry)


def signal(user: UserConnection, params: UserSignalRequest) -> Empty | Coroutine[None, None, Empty]:
    """`_acpterm/terminal/signal`: send a signal to the terminal's foreground process group."""
    return terminal_ops.signal(user.entry(params.terminal_id).terminal, params.signal)


async def wait(user: UserConnection, params: UserTerminalRequest) -> TerminalInfo:
    """`_acpterm/terminal/wait`: return the terminal once its program has exited."""
    entry = user.entry(params.terminal_id)
    with user.cancel_on_close():
        await entry.terminal.wait_exited()
    await user.host.background.check(entry)
    return user.host.terminal_info(entry)


def kill(user: UserConnection, params: UserTerminalRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`_acpterm/terminal/kill`: end the program and all that it has started."""
    entry = user.entry(params.terminal_id)
    user.host.registry.kill(entry, EndedBy.USER)
    return terminal_ops.respond_after_exit(user.host, entry)


def release(
    user: UserConnection, params: UserTerminalRequest
) -> Empty | Coroutine[Any, Any, Empty]:
    """`_acpterm/terminal/release`: end the program, and forget the terminal and its output."""
    entry = user.entry(params.terminal_id)
    user.host.registry.remove(entry)
    return terminal_ops.respond_after_exit(user.host, entry)


def promote(user: UserConnection, params: UserTerminalRequest) -> TerminalInfo:
    """`_acpterm/terminal/promote`: make the user the owner of a terminal. Idempotent.

    Raises `RpcError` (-32602) if the terminal was released.
    """
    entry = user.entry(params.terminal_id)
    user.host.registry.promote(entry)
    return user.host.terminal_info(entry)


async def screen(user: UserConnection, params: UserTerminalRequest) -> ScreenResponse:
    """`_acpterm/terminal/screen`: return the current screen, with colours."""
    entry = user.entry(params.terminal_id)
    return await terminal_ops.screen(user.sender, entry.terminal)


def attach(user: UserConnection, params: AttachRequest) -> Coroutine[Any, Any, AttachResponse]:
    """`_acpterm/terminal/attach`: show a terminal in a window, and keep the window up to date.

    `@last` means the newest terminal that the user has created or taken over. A name means an
    agent's terminal only if no terminal of the user has the name.
    """
    return attach_window(user, user.entry(params.terminal_id, own=True), params)


def window(user: UserConnection, params: WindowRequest) -> Empty:
    """`_acpterm/terminal/window`: set the size of an attached window, and repaint the window.

    Raises `RpcError` (-32602) if no ongoing attach request of the client has the `token`.
    """
    entry, attached = user.window(params.token)
    user.host.windows.change(entry, attached, params.cols, params.rows)
    return Empty()


async def export(user: UserConnection, params: ExportRequest) -> Empty:
    """`_acpterm/terminal/export`: send the retained output, with its times, as an asciicast."""
    entry, token = user.entry(params.terminal_id), params.token
    with user.ongoing_request(token):
        await entry.terminal.caught_up()
        part: list[bytes] = []
        size = 0
        for line in asciicast.export(entry.terminal, command=entry.command):
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
