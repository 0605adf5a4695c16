"""The handlers of agents' methods that read: terminals, their output and exit, their events.

An agent sees the terminals of the session that it names: promoted ones too, but no released ones.
With the setting `agents_read_user_terminals` it can also read terminals that the user created, but
never those of other agents. Descriptions and events leave out what only concerns the user: the
connection's id, windows and recordings.

A request for events is pending until it is cancelled, until the session is closed or forgotten, or
until the connection receives another request with the same token: a client that has reconnected
repeats the request, perhaps before the host has noticed the loss of the former transport.
"""

from collections.abc import Coroutine
from typing import Any, Final

import msgspec
import trio
from msgspec import UNSET, UnsetType

from acpterm.acp.agent_api import AgentEventsRequest, AgentListRequest
from acpterm.acp.agent_meta import OWN, OutputMeta, OutputOptions, own_meta
from acpterm.acp.base import MetaIn
from acpterm.acp.terminal import (
    Empty,
    TerminalOutputResponse,
    TerminalRequest,
    WaitForTerminalExitResponse,
)
from acpterm.acp.user_api import ListResponse
from acpterm.acp.user_streams import EventNotification
from acpterm.host.access import Need
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.entry import TerminalEntry
from acpterm.host.input_monitor import input_wait
from acpterm.host.sessions.session import Session
from acpterm.host.terminal_info import (
    background,
    exit_code,
    exit_meta,
    exit_status,
    for_agent,
    stopped_info,
)
from acpterm.host.verbs import current_screen
from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.terminal import views
from acpterm.terminal.status import ExitStatus

REQUESTS_MAX: Final = 16
"""How many requests for events a connection may have, each with a queue of events."""
_USERS_EVENTS: Final = ("attached", "detached")


async def list_own(connection: AgentConnection, params: AgentListRequest) -> ListResponse:
    """`_acpterm/terminal/list`: return the session's terminals whose ids are valid."""
    if params.left:
        await connection.background.check_all()
    found = []
    for entry in _listed(connection, params):
        found.append(connection.info(entry))
        await trio.lowlevel.checkpoint()
    # Some of the terminals may have been released meanwhile.
    valid = {entry.id for entry in _listed(connection, params)}
    return ListResponse([info for info in found if info.terminal_id in valid])


def _listed(connection: AgentConnection, params: AgentListRequest) -> list[TerminalEntry]:
    session = connection.sessions.get(params.session_id)
    own = [] if session is None else session.entries.values()
    left = connection.registry.left_by(connection.id, params.session_id) if params.left else ()
    return [*own, *left, *(connection.users_terminals() if params.user else ())]


def output(
    connection: AgentConnection, params: TerminalRequest
) -> TerminalOutputResponse | Coroutine[Any, Any, TerminalOutputResponse]:
    """`terminal/output`: return the retained output, and the exit status if there is one yet."""
    entry = connection.resolve(params, Need.HOLD)
    terminal = entry.terminal
    if terminal.view == "screen":
        return _screen_output(connection, entry)
    if not terminal.catch_up() or entry.may_have_background:
        return _wait_and_output(connection, entry, params)
    return _text_output(connection, entry, params)


async def _wait_and_output(
    connection: AgentConnection, entry: TerminalEntry, params: TerminalRequest
) -> TerminalOutputResponse:
    await entry.terminal.caught_up()
    await connection.background.check(entry)
    await connection.sender.drain()
    return _text_output(connection, entry, params)


def _text_output(
    connection: AgentConnection, entry: TerminalEntry, params: TerminalRequest
) -> TerminalOutputResponse:
    terminal = entry.terminal
    if terminal.view == "raw":
        text, truncated = views.raw(terminal)
    else:
        text, truncated = terminal.text.text(), terminal.text.truncated
    return _output(connection, entry, text, truncated=truncated, meta=params.meta)


async def _screen_output(
    connection: AgentConnection, entry: TerminalEntry
) -> TerminalOutputResponse:
    await connection.background.check(entry)
    text = (await current_screen(connection.sender, entry.terminal)).screen.text()
    text, truncated = views.last(text, entry.terminal.limit)
    return _output(connection, entry, text, truncated=truncated)


def _output(
    connection: AgentConnection,
    entry: TerminalEntry,
    text: str,
    *,
    truncated: bool,
    meta: MetaIn = None,
) -> TerminalOutputResponse:
    status = exit_status(entry, signal_code=connection.signal_code)
    own: OutputMeta | UnsetType = UNSET
    if entry.terminal.exit is None:
        is_waiting, program, stopped, _ = input_wait(entry)
        if is_waiting is not None or stopped is not None:
            own = OutputMeta(
                waiting_for_input=bool(is_waiting),
                waiting_program=program or UNSET,
                stopped=stopped_info(stopped),
            )
    if entry.terminal.is_queued:
        own = OutputMeta(queued=True)
    if entry.background.number:
        omitted = entry.background.omitted or UNSET
        own = OutputMeta(background=background(entry), background_omitted=omitted)
    if truncated and entry.terminal.view == "text":
        begin = entry.terminal.text.beginning()
        if begin is not None:
            own = OutputMeta() if isinstance(own, UnsetType) else own
            own.total_lines = begin.total_lines
            if (asked := own_meta(meta, OutputOptions)) is not None and asked.beginning:
                own.beginning = begin.text
    sent = UNSET if isinstance(own, UnsetType) else {OWN: own}
    return TerminalOutputResponse(text, truncated, status, sent)


def wait_for_exit(
    connection: AgentConnection, params: TerminalRequest
) -> WaitForTerminalExitResponse | Coroutine[Any, Any, WaitForTerminalExitResponse]:
    """`terminal/wait_for_exit`: return the exit status once the program has exited."""
    entry = connection.resolve(params, Need.HOLD)
    terminal = entry.terminal

    async def wait() -> WaitForTerminalExitResponse:
        status = await terminal.wait_exited()
        await connection.background.check(entry)
        return _exit_response(connection, entry, status)

    if terminal.exit is None or entry.may_have_background:
        return wait()
    return _exit_response(connection, entry, terminal.exit)


def _exit_response(
    connection: AgentConnection, entry: TerminalEntry, status: ExitStatus
) -> WaitForTerminalExitResponse:
    code = exit_code(status, signal_code=connection.signal_code)
    return WaitForTerminalExitResponse(code, status.signal, exit_meta(entry, status))


def events(connection: AgentConnection, params: AgentEventsRequest) -> Coroutine[Any, Any, Empty]:
    """`_acpterm/events`: send the events about the session's terminals until the request ends."""
    requests = connection.event_requests
    if params.token not in requests and len(requests) >= REQUESTS_MAX:
        raise RpcError(
            INVALID_PARAMS,
            f"{REQUESTS_MAX} requests for events are pending on this connection: cancel one",
        )
    session = connection.session(params.session_id)
    if former := requests.get(params.token):
        former.cancel()
    # Register now: many requests may be received before the first one's task runs.
    scope = requests[params.token] = trio.CancelScope()
    return _events(connection, session, params.token, scope)


async def _events(
    connection: AgentConnection, session: Session, token: str, scope: trio.CancelScope
) -> Empty:
    try:
        with scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(_send, connection, session, token)
                await session.closed.wait()
                scope.cancel()
    finally:
        requests = connection.event_requests
        if requests.get(token) is scope:
            del requests[token]
    return Empty()


async def _send(connection: AgentConnection, session: Session, token: str) -> None:
    def is_own(event: EventNotification) -> bool:
        terminal = event.terminal
        return (
            terminal is not None
            and terminal.connection == connection.id
            and terminal.session_id == session.id
            and (terminal.owner == "agent" or terminal.terminal_id in session.entries)
            and event.event not in _USERS_EVENTS
        )

    with connection.events.subscribe(is_own) as subscription:
        while True:
            event = await subscription.next()
            await connection.sender.drain()
            own = None if event.terminal is None else for_agent(event.terminal)
            event = msgspec.structs.replace(event, token=token, terminal=own, connection=None)
            connection.sender.notify("_acpterm/event", event)
