"""What the person asks of terminals: to see them, to type, to take over, to end and to remove."""

import base64
import binascii
from collections.abc import Coroutine
from typing import Any

import trio

from acpterm.acp import Empty, ReadResponse, WriteResponse
from acpterm.acp.user_api import (
    AttachRequest,
    AttachResponse,
    ExportedNotification,
    ExportRequest,
    GetRequest,
    ListRequest,
    ListResponse,
    RenameRequest,
    ScreenResponse,
    TerminalInfo,
    UserCreateRequest,
    UserReadRequest,
    UserResizeRequest,
    UserSignalRequest,
    UserTerminalRequest,
    UserWriteRequest,
    WindowRequest,
)
from acpterm.acp.user_output import FollowRequest, FollowResponse, OutputResponse
from acpterm.host import terminal_ops
from acpterm.host.launch.command import summary
from acpterm.host.launch.request import LaunchRequest
from acpterm.host.recording import asciicast
from acpterm.host.registry import TerminalEntry
from acpterm.host.screens import current_screen
from acpterm.host.terminal_info import exit_info
from acpterm.host.user.attach import attach as attach_window
from acpterm.host.user.connection import UserConnection
from acpterm.host.user.follow import follow as follow_output
from acpterm.host.user.launches import launch_of
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.terminal.status import EndedBy
from acpterm.terminal.vt.rows import rows

# Characters of an asciicast in one notification.
_LINES = 64 * 1024


async def list_all(user: UserConnection, params: ListRequest) -> ListResponse:
    """`_acpterm/terminal/list`: those that somebody holds; `all`: those too that are kept."""
    user.host.registry.expire()
    found = []
    for entry in user.host.registry:
        if params.all or entry.released_at is None:
            found.append(user.host.terminal_info(entry))
            await trio.lowlevel.checkpoint()
    return ListResponse(found)


def get(user: UserConnection, params: GetRequest) -> TerminalInfo:
    """`_acpterm/terminal/get`: one terminal."""
    return user.host.terminal_info(user.entry(params.terminal_id, own=params.own))


async def create(user: UserConnection, params: UserCreateRequest) -> TerminalInfo:
    """`_acpterm/terminal/create`: a terminal of the person's own."""
    host, settings = user.host, user.settings
    order = LaunchRequest(
        settings,
        user.context,
        command=params.command,
        args=params.args,
        env=[(item.name, item.value) for item in params.env],
        cwd=params.cwd or user.context.cwd,
        size=(params.cols or settings.cols, params.rows or settings.rows),
        attended=True,
        stdin=params.stdin,
    )
    with host.registry.reserve_name(params.name):
        await user.directories.check(order.cwd)
        record = order.record(summary(params.command, params.args))
        record.name, record.is_removed_at_end = params.name, params.remove
        terminal = await order.start(host.pool, record, host.state)
        if params.hold:
            user.pause_reader(terminal, 0)
        launch = launch_of(params, user.context, order)
        entry = TerminalEntry(terminal, record, host.state, launch=launch)
        host.add(entry, order.env)
    return host.terminal_info(entry)


def read(user: UserConnection, params: UserReadRequest) -> Coroutine[Any, Any, ReadResponse]:
    """`_acpterm/terminal/read`: as an agent's, of any terminal."""
    reading = terminal_ops.read(user, user.entry(params.terminal_id).terminal, params)

    async def read() -> ReadResponse:
        with user.cancel_on_close():
            return await reading

    return read()


def output(
    user: UserConnection, params: UserTerminalRequest
) -> Coroutine[Any, Any, OutputResponse]:
    """`_acpterm/terminal/output`: the text, and up to where in the stream it is that."""
    return _output(user, user.entry(params.terminal_id))


async def _output(user: UserConnection, entry: TerminalEntry) -> OutputResponse:
    await user.sender.drain()
    terminal, view = entry.terminal, entry.terminal.text
    if not terminal.catch_up():
        await terminal.caught_up()
    text, truncated = view.text(), view.truncated
    if entry.released_at is not None:
        # As when it was released: it is not to be held twice.
        view.forget()
    return OutputResponse(text, truncated, terminal.ring.end, exit_info(terminal.exit))


def follow(user: UserConnection, params: FollowRequest) -> Coroutine[Any, Any, FollowResponse]:
    """`_acpterm/terminal/follow`: the bytes after a position, as they come."""
    entry = user.entry(params.terminal_id)
    if params.hold and not entry.is_users:
        raise RpcError(
            INVALID_PARAMS, f"terminal {entry.id!r} is an agent's: nobody has it wait with `hold`"
        )
    return follow_output(user, entry.terminal, params)


def write(user: UserConnection, params: UserWriteRequest) -> Coroutine[Any, Any, WriteResponse]:
    """`_acpterm/terminal/write`: type text, or any bytes; `@last` is the user's own."""
    if params.encoding is None:
        data = params.data.encode()
    else:
        try:
            data = base64.b64decode(params.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RpcError(INVALID_PARAMS, f"data is not base64: {error}") from error
    return terminal_ops.write(user.entry(params.terminal_id, own=True).terminal, data)


def resize(user: UserConnection, params: UserResizeRequest) -> Empty:
    """`_acpterm/terminal/resize`: set the size that a terminal has while nobody is attached."""
    entry = user.entry(params.terminal_id)
    try:
        user.host.windows.resize(entry, params.cols, params.rows)
    except (trio.ClosedResourceError, OSError) as error:
        raise terminal_ops.has_ended(entry.terminal) from error
    return Empty()


def rename(user: UserConnection, params: RenameRequest) -> TerminalInfo:
    """`_acpterm/terminal/rename`: give a terminal another name."""
    entry = user.entry(params.terminal_id)
    user.host.registry.rename(entry, params.name)
    return user.host.terminal_info(entry)


def signal(user: UserConnection, params: UserSignalRequest) -> Empty:
    """`_acpterm/terminal/signal`: signal the foreground process group, as a key would."""
    terminal_ops.signal(user.entry(params.terminal_id).terminal, params.signal)
    return Empty()


async def wait(user: UserConnection, params: UserTerminalRequest) -> TerminalInfo:
    """`_acpterm/terminal/wait`: answered when the program has ended."""
    entry = user.entry(params.terminal_id)
    with user.cancel_on_close():
        await entry.terminal.wait_exited()
    return user.host.terminal_info(entry)


def kill(user: UserConnection, params: UserTerminalRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`_acpterm/terminal/kill`: end the program and all that comes from it."""
    entry = user.entry(params.terminal_id)
    user.host.registry.kill(entry, EndedBy.USER)
    return terminal_ops.answer_when_ended(entry.terminal)


def release(
    user: UserConnection, params: UserTerminalRequest
) -> Empty | Coroutine[Any, Any, Empty]:
    """`_acpterm/terminal/release`: as kill, and nothing of it is kept."""
    entry = user.entry(params.terminal_id)
    user.host.registry.remove(entry)
    return terminal_ops.answer_when_ended(entry.terminal)


def promote(user: UserConnection, params: UserTerminalRequest) -> TerminalInfo:
    """`_acpterm/terminal/promote`: take it over: it is the person's from now on."""
    entry = user.entry(params.terminal_id)
    user.host.registry.promote(entry)
    return user.host.terminal_info(entry)


async def screen(user: UserConnection, params: UserTerminalRequest) -> ScreenResponse:
    """`_acpterm/terminal/screen`: what a window on it shows now, with colours."""
    entry = user.entry(params.terminal_id)
    now, position = await current_screen(entry.terminal)
    return ScreenResponse(
        rows=rows(now),
        cols=now.cols,
        lines=now.rows,
        cursor=now.cursor,
        cursor_visible=now.cursor_visible,
        application_cursor=now.application_cursor,
        bracketed_paste=now.bracketed_paste,
        title=now.title,
        position=position,
    )


def attach(user: UserConnection, params: AttachRequest) -> Coroutine[Any, Any, AttachResponse]:
    """`_acpterm/terminal/attach`: show a terminal in a window; `@last` is the user's own."""
    return attach_window(user, user.entry(params.terminal_id, own=True), params)


def window(user: UserConnection, params: WindowRequest) -> Empty:
    """`_acpterm/terminal/window`: an attached window has another size now."""
    entry, attached = user.window(params.token)
    user.host.windows.change(entry, attached, params.cols, params.rows)
    return Empty()


async def export(user: UserConnection, params: ExportRequest) -> Empty:
    """`_acpterm/terminal/export`: what is kept of a terminal, with its times, as an asciicast."""
    entry, token = user.entry(params.terminal_id), params.token
    with user.ongoing_request(token):
        await entry.terminal.caught_up()
        part: list[bytes] = []
        size = 0
        for line in asciicast.export(entry.terminal, command=entry.command):
            part.append(line)
            size += len(line)
            await trio.lowlevel.checkpoint()
            if size >= _LINES:
                await _tell_part(user, token, part)
                part, size = [], 0
        await _tell_part(user, token, part)
    return Empty()


async def _tell_part(user: UserConnection, token: str, part: list[bytes]) -> None:
    await user.sender.drain()
    lines = b"".join(part).decode()
    user.sender.notify("_acpterm/terminal/exported", ExportedNotification(token, lines))
