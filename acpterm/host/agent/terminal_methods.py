"""The five terminal methods of ACP v1 ("Terminals"), and what is common to all that name one.

A handler that has its answer at once returns it; one that has to wait returns a coroutine, which
the connection runs in a task of its own. Cancelling one leaves the terminal as it is.
"""

import math
from collections.abc import Coroutine
from typing import Any, Final

import trio
from msgspec import UNSET

from acpterm.acp import (
    CreateMeta,
    CreateTerminalRequest,
    CreateTerminalResponse,
    Empty,
    OutputMeta,
    TerminalOutputResponse,
    TerminalRequest,
    WaitForTerminalExitResponse,
    own_meta,
)
from acpterm.acp.agent_api import OWN
from acpterm.host.agent.connection import Caller
from acpterm.host.agent.creates import recognised
from acpterm.host.exit_status import exit_code, exit_meta, exit_status
from acpterm.host.launch.command import summary
from acpterm.host.launch.request import Order
from acpterm.host.launch.validation import seconds
from acpterm.host.registry import Entry
from acpterm.host.screens import check_screen, shown
from acpterm.jsonrpc import REQUEST_CANCELLED, Id, RpcError
from acpterm.terminal import views
from acpterm.terminal.status import EndedBy, ExitStatus
from acpterm.terminal.terminal import Terminal

# Seconds that kill and release wait for the end they cause, before they answer all the same.
PATIENCE: Final = 0.3


def create(
    caller: Caller, params: CreateTerminalRequest, request_id: Id
) -> CreateTerminalResponse | Coroutine[Any, Any, CreateTerminalResponse]:
    """`terminal/create`: start a command in a new terminal.

    One that was sent before, on a transport that was lost, is answered with its terminal.
    """
    request = recognised(request_id)
    if entry := caller.creates.repeated(request):
        return CreateTerminalResponse(entry.id)
    settings = caller.settings
    wishes = own_meta(params.meta, CreateMeta) or CreateMeta()
    session = caller.session(params.session_id)
    order = Order(
        settings,
        caller.asker,
        command=params.command,
        args=params.args,
        env=[(item.name, item.value) for item in params.env],
        # Taken now: what the agent asks afterwards is not to have been before.
        cwd=params.cwd or session.cwd or caller.asker.cwd,
        shell=wishes.shell,
        size=(wishes.cols or settings.cols, wishes.rows or settings.rows),
    )
    if wishes.format == "screen":
        check_screen(*order.size)
    # It has something to remember from now on: whether its turn is cancelled meanwhile.
    caller.own(session)
    turn = session.cancelled

    lifetime = math.inf if wishes.timeout_ms is None else seconds(wishes.timeout_ms)

    async def start() -> CreateTerminalResponse:
        await caller.creates.wait_in_flight(request)
        if entry := caller.creates.repeated(request):
            return CreateTerminalResponse(entry.id)
        with caller.creates.in_flight(request):
            await caller.folders.check(order.cwd)
            if session.cancelled != turn:
                raise _cancelled()
            record = order.record(
                summary(params.command, params.args),
                limit=params.output_byte_limit,
                lifetime=lifetime,
                view=wishes.format or "text",
            )
            record.is_users, record.request = False, request
            record.connection, record.agent = caller.agent.connection, caller.agent.name
            record.session, record.secret = session.id, caller.secret
            terminal = await order.start(caller.pool, record, caller.shared.state)
            if session.cancelled != turn:
                caller.pool.release(terminal, EndedBy.AGENT)
                caller.pool.forget(terminal)
                raise _cancelled()
            caller.add(session, terminal, order, record)
        return CreateTerminalResponse(terminal.id)

    return start()


def _cancelled() -> RpcError:
    return RpcError(REQUEST_CANCELLED, "cancelled with the turn")


def output(
    caller: Caller, params: TerminalRequest
) -> TerminalOutputResponse | Coroutine[Any, Any, TerminalOutputResponse]:
    """`terminal/output`: what the terminal has, and its exit status once it has exited."""
    session = caller.session(params.session_id)
    terminal = session.get(params.terminal_id)
    entry = session.entries[terminal.id]
    if terminal.view == "screen":
        return _screen_output(caller, entry)
    if not terminal.catch_up():
        return _late_output(caller, entry)
    return _text_output(caller, entry)


async def _late_output(caller: Caller, entry: Entry) -> TerminalOutputResponse:
    await entry.terminal.caught_up()
    return _text_output(caller, entry)


def _text_output(caller: Caller, entry: Entry) -> TerminalOutputResponse:
    terminal = entry.terminal
    if terminal.view == "raw":
        text, truncated = views.raw(terminal)
    else:
        text, truncated = terminal.text.text(), terminal.text.truncated
    return _output(caller, entry, text, truncated=truncated)


async def _screen_output(caller: Caller, entry: Entry) -> TerminalOutputResponse:
    text = (await shown(entry.terminal)).screen.text()
    text, truncated = views.last(text, entry.terminal.limit)
    return _output(caller, entry, text, truncated=truncated)


def _output(caller: Caller, entry: Entry, text: str, *, truncated: bool) -> TerminalOutputResponse:
    status = exit_status(entry.terminal.exit, signal_code=caller.signal_code)
    waits = caller.shared.attention.look(entry) if entry.terminal.exit is None else None
    meta = UNSET if waits is None else {OWN: OutputMeta(waiting_for_input=waits)}
    return TerminalOutputResponse(text, truncated, status, meta)


def wait_for_exit(
    caller: Caller, params: TerminalRequest
) -> WaitForTerminalExitResponse | Coroutine[Any, Any, WaitForTerminalExitResponse]:
    """`terminal/wait_for_exit`: answered when the program has ended, however that comes."""
    terminal = caller.session(params.session_id).get(params.terminal_id)

    async def wait() -> WaitForTerminalExitResponse:
        return _waited(caller, await terminal.wait_exited())

    return wait() if terminal.exit is None else _waited(caller, terminal.exit)


def kill(caller: Caller, params: TerminalRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`terminal/kill`: end the program and all that comes from it; the id stays valid."""
    entry = caller.session(params.session_id).mine(params.terminal_id, "killed")
    caller.shared.roster.kill(entry, EndedBy.AGENT)
    return answer_when_ended(entry.terminal)


def release(caller: Caller, params: TerminalRequest) -> Empty | Coroutine[Any, Any, Empty]:
    """`terminal/release`: as kill, and the id is valid no more. A second one succeeds too."""
    session = caller.session(params.session_id)
    terminal = caller.release(session, params.terminal_id, EndedBy.AGENT)
    return Empty() if terminal is None else answer_when_ended(terminal)


def answer_when_ended(terminal: Terminal) -> Empty | Coroutine[Any, Any, Empty]:
    """Answer when the program has ended, or `PATIENCE` is over and it will have to."""
    if terminal.exit is not None:
        return Empty()

    async def wait() -> Empty:
        with trio.move_on_after(PATIENCE):
            await terminal.wait_exited()
        return Empty()

    return wait()


def _waited(caller: Caller, status: ExitStatus) -> WaitForTerminalExitResponse:
    code = exit_code(status, signal_code=caller.signal_code)
    return WaitForTerminalExitResponse(code, status.signal, exit_meta(status))
