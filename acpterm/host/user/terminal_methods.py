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
    NamedRequest,
    PersonCreateRequest,
    PersonReadRequest,
    PersonResizeRequest,
    PersonSignalRequest,
    PersonWriteRequest,
    RenameRequest,
    ScreenResponse,
    TerminalInfo,
    WindowRequest,
)
from acpterm.acp.user_output import FollowRequest, FollowResponse, OutputResponse
from acpterm.host import terminal_ops
from acpterm.host.agent.terminal_methods import answer_when_ended
from acpterm.host.launch.command import summary
from acpterm.host.launch.request import Order
from acpterm.host.recording import asciicast
from acpterm.host.registry import Entry
from acpterm.host.screens import shown
from acpterm.host.terminal_info import exit_of
from acpterm.host.user.attach import attach as attach_window
from acpterm.host.user.connection import Person
from acpterm.host.user.follow import follow as follow_output
from acpterm.host.user.launches import launch_of
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.terminal.status import EndedBy
from acpterm.terminal.vt.rows import rows

# Characters of an asciicast in one notification.
_LINES = 64 * 1024


async def list_all(person: Person, params: ListRequest) -> ListResponse:
    """`_acpterm/terminal/list`: those that somebody holds; `all`: those too that are kept."""
    person.shared.roster.expire()
    found = []
    for entry in person.shared.roster:
        if params.all or entry.released is None:
            found.append(person.shared.describe(entry))
            await trio.lowlevel.checkpoint()
    return ListResponse(found)


def get(person: Person, params: GetRequest) -> TerminalInfo:
    """`_acpterm/terminal/get`: one terminal."""
    return person.shared.describe(person.entry(params.terminal_id, own=params.own))


async def create(person: Person, params: PersonCreateRequest) -> TerminalInfo:
    """`_acpterm/terminal/create`: a terminal of the person's own."""
    shared, settings = person.shared, person.settings
    order = Order(
        settings,
        person.asker,
        command=params.command,
        args=params.args,
        env=[(item.name, item.value) for item in params.env],
        cwd=params.cwd or person.asker.cwd,
        size=(params.cols or settings.cols, params.rows or settings.rows),
        attended=True,
        stdin=params.stdin,
    )
    with shared.roster.naming(params.name):
        await person.folders.check(order.cwd)
        record = order.record(summary(params.command, params.args))
        record.name, record.is_removed_at_end = params.name, params.remove
        terminal = await order.start(shared.pool, record, shared.state)
        if params.hold:
            person.hold(terminal, 0)
        launch = launch_of(params, person.asker, order)
        entry = Entry(terminal, record, shared.state, launch=launch)
        shared.add(entry, order.env)
    return shared.describe(entry)


def read(person: Person, params: PersonReadRequest) -> Coroutine[Any, Any, ReadResponse]:
    """`_acpterm/terminal/read`: as an agent's, of any terminal."""
    reading = terminal_ops.read(person, person.entry(params.terminal_id).terminal, params)

    async def read() -> ReadResponse:
        with person.present():
            return await reading

    return read()


def output(person: Person, params: NamedRequest) -> Coroutine[Any, Any, OutputResponse]:
    """`_acpterm/terminal/output`: the text, and up to where in the stream it is that."""
    return _output(person, person.entry(params.terminal_id))


async def _output(person: Person, entry: Entry) -> OutputResponse:
    await person.sender.room()
    terminal, view = entry.terminal, entry.terminal.text
    if not terminal.catch_up():
        await terminal.caught_up()
    text, truncated = view.text(), view.truncated
    if entry.released is not None:
        # As when it was released: it is not to be held twice.
        view.forget()
    return OutputResponse(text, truncated, terminal.ring.end, exit_of(terminal.exit))


def follow(person: Person, params: FollowRequest) -> Coroutine[Any, Any, FollowResponse]:
    """`_acpterm/terminal/follow`: the bytes after a position, as they come."""
    entry = person.entry(params.terminal_id)
    if params.hold and not entry.is_users:
        raise RpcError(
            INVALID_PARAMS, f"terminal {entry.id!r} is an agent's: nobody has it wait with `hold`"
        )
    return follow_output(person, entry.terminal, params)


def write(person: Person, params: PersonWriteRequest) -> Coroutine[Any, Any, WriteResponse]:
    """`_acpterm/terminal/write`: type text, or any bytes; `@last` is the user's own."""
    if params.encoding is None:
        data = params.data.encode()
    else:
        try:
            data = base64.b64decode(params.data, validate=True)
        except (binascii.Error, ValueError) as error:
            raise RpcError(INVALID_PARAMS, f"data is not base64: {error}") from error
    return terminal_ops.write(person.entry(params.terminal_id, own=True).terminal, data)


def resize(person: Person, params: PersonResizeRequest) -> Empty:
    """`_acpterm/terminal/resize`: set the size that a terminal has while nobody is attached."""
    entry = person.entry(params.terminal_id)
    try:
        person.shared.windows.resize(entry, params.cols, params.rows)
    except (trio.ClosedResourceError, OSError) as error:
        raise terminal_ops.has_ended(entry.terminal) from error
    return Empty()


def rename(person: Person, params: RenameRequest) -> TerminalInfo:
    """`_acpterm/terminal/rename`: give a terminal another name."""
    entry = person.entry(params.terminal_id)
    person.shared.roster.rename(entry, params.name)
    return person.shared.describe(entry)


def signal(person: Person, params: PersonSignalRequest) -> Empty:
    """`_acpterm/terminal/signal`: signal the foreground process group, as a key would."""
    terminal_ops.signal(person.entry(params.terminal_id).terminal, params.signal)
    return Empty()


async def wait(person: Person, params: NamedRequest) -> TerminalInfo:
    """`_acpterm/terminal/wait`: answered when the program has ended."""
    entry = person.entry(params.terminal_id)
    with person.present():
        await entry.terminal.wait_exited()
    return person.shared.describe(entry)


def kill(person: Person, params: NamedRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`_acpterm/terminal/kill`: end the program and all that comes from it."""
    entry = person.entry(params.terminal_id)
    person.shared.roster.kill(entry, EndedBy.USER)
    return answer_when_ended(entry.terminal)


def release(person: Person, params: NamedRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`_acpterm/terminal/release`: as kill, and nothing of it is kept."""
    entry = person.entry(params.terminal_id)
    person.shared.roster.remove(entry)
    return answer_when_ended(entry.terminal)


def promote(person: Person, params: NamedRequest) -> TerminalInfo:
    """`_acpterm/terminal/promote`: take it over: it is the person's from now on."""
    entry = person.entry(params.terminal_id)
    person.shared.roster.promote(entry)
    return person.shared.describe(entry)


async def screen(person: Person, params: NamedRequest) -> ScreenResponse:
    """`_acpterm/terminal/screen`: what a window on it shows now, with colours."""
    entry = person.entry(params.terminal_id)
    now, position = await shown(entry.terminal)
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


def attach(person: Person, params: AttachRequest) -> Coroutine[Any, Any, AttachResponse]:
    """`_acpterm/terminal/attach`: show a terminal in a window; `@last` is the user's own."""
    return attach_window(person, person.entry(params.terminal_id, own=True), params)


def window(person: Person, params: WindowRequest) -> Empty:
    """`_acpterm/terminal/window`: an attached window has another size now."""
    entry, attached = person.window(params.token)
    person.shared.windows.change(entry, attached, params.cols, params.rows)
    return Empty()


async def export(person: Person, params: ExportRequest) -> Empty:
    """`_acpterm/terminal/export`: what is kept of a terminal, with its times, as an asciicast."""
    entry, token = person.entry(params.terminal_id), params.token
    with person.going(token):
        await entry.terminal.caught_up()
        part: list[bytes] = []
        size = 0
        for line in asciicast.export(entry.terminal, command=entry.command):
            part.append(line)
            size += len(line)
            await trio.lowlevel.checkpoint()
            if size >= _LINES:
                await _tell_part(person, token, part)
                part, size = [], 0
        await _tell_part(person, token, part)
    return Empty()


async def _tell_part(person: Person, token: str, part: list[bytes]) -> None:
    await person.sender.room()
    lines = b"".join(part).decode()
    person.sender.notify("_acpterm/terminal/exported", ExportedNotification(token, lines))
