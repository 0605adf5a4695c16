"""The handlers of the agents' methods about terminals: `terminal/*` and `_acpterm/terminal/*`.

`terminal/*` are the five methods of ACP v1 ("Terminals"). `_acpterm/terminal/*` are acpterm's own:
docs/protocol.md documents them, and the response to `initialize` advertises them.

A handler returns its response, or a coroutine if it has to wait; the connection runs the coroutine
in a separate task. Cancelling a request about an existing terminal leaves the terminal unchanged.

Handlers of requests about an existing terminal raise `RpcError`: -32002 if the session has no such
terminal; -32602 if the request would change a terminal that the user owns.
"""

import math
from collections.abc import Coroutine
from typing import Any

from msgspec import UNSET, UnsetType

from acpterm.acp.agent_api import ResizeRequest, SignalRequest, WriteRequest, WriteResponse
from acpterm.acp.agent_meta import OWN, CreatedMeta, CreateMeta, OutputMeta, own_meta, variable_of
from acpterm.acp.terminal import (
    CreateTerminalRequest,
    CreateTerminalResponse,
    Empty,
    TerminalOutputResponse,
    TerminalRequest,
    WaitForTerminalExitResponse,
)
from acpterm.acp.user_api import TerminalInfo
from acpterm.host import terminal_ops
from acpterm.host.agent import gate
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.creates import recognisable_id
from acpterm.host.agent.judgement import Judgement
from acpterm.host.agent.read_methods import agents_info
from acpterm.host.agent.session import Session
from acpterm.host.entry import TerminalEntry
from acpterm.host.input_monitor import input_wait
from acpterm.host.launch.command import summary
from acpterm.host.launch.placement import resources_of
from acpterm.host.launch.request import LaunchRequest
from acpterm.host.launch.validation import directory_of, seconds
from acpterm.host.state.records import RequestId, TerminalRecord, pack_text
from acpterm.host.terminal_info import (
    background,
    cwd_gone,
    exit_code,
    exit_meta,
    exit_status,
    stopped_info,
)
from acpterm.host.terminal_ops import check_screen, current_screen
from acpterm.jsonrpc import REQUEST_CANCELLED, Id, RpcError, readable
from acpterm.providers.provider import is_place
from acpterm.terminal import views
from acpterm.terminal.status import EndedBy, ExitStatus


def create(
    connection: AgentConnection, params: CreateTerminalRequest, request_id: Id
) -> CreateTerminalResponse | Coroutine[Any, Any, CreateTerminalResponse]:
    """`terminal/create`: start a command in a new terminal.

    If the client repeats the request after a reconnect, the response names the terminal that the
    first request created. Raises `RpcError`: -32602 for invalid params; -32603 if the program
    cannot be started; -32800 if the request, or the prompt turn (`session/cancel`), is cancelled
    meanwhile: then no terminal is left. Also raises the errors of `gate`.
    """
    request = recognisable_id(request_id)
    if entry := connection.creates.repeated(request):
        return _create_response(entry)
    with gate.recording_refusal(connection, params):
        return _create(connection, params, request)


def _create(
    connection: AgentConnection, params: CreateTerminalRequest, request: RequestId | None
) -> Coroutine[Any, Any, CreateTerminalResponse]:
    """Judge a create request, and return a coroutine that completes the request.

    The coroutine asks the user if needed, starts the command, and returns the response.
    `params` are those of the create request. `request` is its JSON-RPC id, or None if a repetition
    of the create request cannot be recognised by the id (`creates.recognisable_id`).
    """
    options = own_meta(params.meta, CreateMeta) or CreateMeta()
    session = connection.session(params.session_id)
    asked = directory_of(params.cwd, options.cwd_bytes)
    # Evaluated now: later requests of the agent must not affect this terminal.
    cwd = asked or connection.default_directory(session)
    judgement, launch = _judged(connection, session, params, options, cwd)
    if options.format == "screen":
        check_screen(*launch.size)
    turn = session.cancelled
    session.pending_creates += 1

    async def start() -> CreateTerminalResponse:
        nonlocal judgement, launch
        try:
            await connection.creates.wait_in_flight(request)
            if entry := connection.creates.repeated(request):
                return _create_response(entry)
            registry = connection.host.registry
            with (
                connection.creates.in_flight(request),
                registry.reserve_name(options.name) as name,
            ):
                if not is_place(judgement.provider):
                    found = await _existing(connection, asked, cwd)
                    if found != cwd:
                        # What is allowed in a directory that is gone is not allowed in its parent.
                        judgement, launch = _judged(connection, session, params, options, found)
                if session.cancelled != turn:
                    raise _cancelled()
                launch.check_provider(judgement.provider)
                placement = gate.placement(
                    connection, session, judgement, resources_of(options.resources)
                )
                await gate.admit(connection, session, params, judgement, request)
                if session.cancelled != turn:
                    raise _cancelled()
                record = _record_of(
                    connection, session, params, options, judgement=judgement, launch=launch
                )
                record.name, record.request = name, request
                record.cwd_gone = None if launch.cwd == cwd else pack_text(cwd)
                with connection.host.quotas.starting(judgement.profiles, connection, session.id):
                    terminal = await launch.start(
                        connection.pool,
                        record,
                        placement,
                        connection.host.state_writer,
                        strict=judgement.refuses_unenforceable_limits,
                    )
                    # Even if the turn was cancelled meanwhile, the program counts as started.
                    entry = connection.add(session, terminal, launch, record)
                if session.cancelled != turn:
                    connection.creates.confirm(entry)
                    connection.release(session, entry.id, EndedBy.AGENT)
                    raise _cancelled()
            return _create_response(entry)
        finally:
            session.pending_creates -= 1

    async def start_recorded() -> CreateTerminalResponse:
        with gate.recording_refusal(connection, params):
            return await start()

    return start_recorded()


def _judged(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest,
    options: CreateMeta,
    cwd: str,
) -> tuple[Judgement, LaunchRequest]:
    """Judge a create request in the directory `cwd`; also return what it starts there."""
    settings = connection.settings
    judgement = gate.judge_create(connection, session, params, options, cwd)
    launch = LaunchRequest(
        settings,
        connection.context,
        command=params.command,
        args=params.args,
        env=[*map(variable_of, params.env)],
        cwd=cwd,
        shell=judgement.shell(options.shell),
        size=(options.cols or settings.cols, options.rows or settings.rows),
        encoding=options.encoding,
        stdin=options.stdin,
    )
    return judgement, launch


async def _existing(connection: AgentConnection, asked: str | None, cwd: str) -> str:
    """Return `asked`, or else the nearest directory to the session's, `cwd`, that exists."""
    if asked is None:
        return await connection.directories.nearest(cwd)
    await connection.directories.check(asked)
    return asked


def _record_of(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest,
    options: CreateMeta,
    *,
    judgement: Judgement,
    launch: LaunchRequest,
) -> TerminalRecord:
    record = launch.record(
        summary(params.command, params.args),
        limit=params.output_byte_limit,
        lifetime=math.inf if options.timeout_ms is None else seconds(options.timeout_ms),
        view=options.format or "text",
        limits=judgement.limits,
    )
    agent = connection.agent
    record.is_users = False
    record.connection, record.agent = agent.connection_id, agent.name
    record.session, record.secret = session.id, connection.secret
    record.rights = connection.rights(session)
    record.level = judgement.level
    record.ends_background = "terminal" in (connection.settings.background, options.background)
    return record


def _create_response(entry: TerminalEntry) -> CreateTerminalResponse:
    record = entry.record
    name = UNSET if record.name is None else record.name
    host = UNSET if record.host is None else record.host
    created = CreatedMeta(record.provider, record.isolation, record.level, name, host)
    if entry.terminal.is_queued:
        created.queued = True
    if record.cwd_gone is not None:
        created.cwd, created.cwd_gone = readable(entry.cwd), cwd_gone(entry)
    return CreateTerminalResponse(entry.id, {OWN: created})


def _cancelled() -> RpcError:
    return RpcError(REQUEST_CANCELLED, "cancelled with the turn")


def output(
    connection: AgentConnection, params: TerminalRequest
) -> TerminalOutputResponse | Coroutine[Any, Any, TerminalOutputResponse]:
    """`terminal/output`: return the retained output, and the exit status if there is one yet."""
    session = connection.find_session(params)
    entry = session.readable(params.terminal_id)
    terminal = entry.terminal
    if terminal.view == "screen":
        return _screen_output(connection, entry)
    if not terminal.catch_up() or entry.may_have_background:
        return _wait_and_output(connection, entry)
    return _text_output(connection, entry)


async def _wait_and_output(
    connection: AgentConnection, entry: TerminalEntry
) -> TerminalOutputResponse:
    await entry.terminal.caught_up()
    await connection.host.background.check(entry)
    await connection.sender.drain()
    return _text_output(connection, entry)


def _text_output(connection: AgentConnection, entry: TerminalEntry) -> TerminalOutputResponse:
    terminal = entry.terminal
    if terminal.view == "raw":
        text, truncated = views.raw(terminal)
    else:
        text, truncated = terminal.text.text(), terminal.text.truncated
    return _output(connection, entry, text, truncated=truncated)


async def _screen_output(
    connection: AgentConnection, entry: TerminalEntry
) -> TerminalOutputResponse:
    await connection.host.background.check(entry)
    text = (await current_screen(connection.sender, entry.terminal)).screen.text()
    text, truncated = views.last(text, entry.terminal.limit)
    return _output(connection, entry, text, truncated=truncated)


def _output(
    connection: AgentConnection, entry: TerminalEntry, text: str, *, truncated: bool
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
            own.beginning, own.total_lines = begin
    meta = UNSET if isinstance(own, UnsetType) else {OWN: own}
    return TerminalOutputResponse(text, truncated, status, meta)


def wait_for_exit(
    connection: AgentConnection, params: TerminalRequest
) -> WaitForTerminalExitResponse | Coroutine[Any, Any, WaitForTerminalExitResponse]:
    """`terminal/wait_for_exit`: return the exit status once the program has exited."""
    entry = connection.find_session(params).readable(params.terminal_id)
    terminal = entry.terminal

    async def wait() -> WaitForTerminalExitResponse:
        status = await terminal.wait_exited()
        await connection.host.background.check(entry)
        return _exit_response(connection, entry, status)

    if terminal.exit is None or entry.may_have_background:
        return wait()
    return _exit_response(connection, entry, terminal.exit)


def kill(
    connection: AgentConnection, params: TerminalRequest
) -> Empty | Coroutine[Any, Any, Empty]:
    """`terminal/kill`: end the program and all that it has started; the id stays valid."""
    entry = connection.find_session(params).owned(params.terminal_id, "killed")
    connection.host.registry.kill(entry, EndedBy.AGENT)
    return terminal_ops.respond_after_exit(connection.host, entry)


def release(
    connection: AgentConnection, params: TerminalRequest
) -> Empty | Coroutine[Any, Any, Empty]:
    """`terminal/release`: make the terminal's id invalid, and end the program. Idempotent.

    A program whose terminal the user owns keeps running. What an exited program has left running
    in the background continues.
    """
    session = connection.find_session(params)
    entry = connection.release(session, params.terminal_id, EndedBy.AGENT, leaves_background=True)
    return Empty() if entry is None else terminal_ops.respond_after_exit(connection.host, entry)


def _exit_response(
    connection: AgentConnection, entry: TerminalEntry, status: ExitStatus
) -> WaitForTerminalExitResponse:
    code = exit_code(status, signal_code=connection.signal_code)
    return WaitForTerminalExitResponse(code, status.signal, exit_meta(entry, status))


def write(connection: AgentConnection, params: WriteRequest) -> Coroutine[Any, Any, WriteResponse]:
    """`_acpterm/terminal/write`: write keyboard input; respond once the input was written.

    If a cluster has not started the program yet, respond at once.
    """
    entry = connection.find_session(params).owned(params.terminal_id, "typed into")
    data = params.data.encode()
    connection.host.trail.input(entry, "agent", data)
    return terminal_ops.write(entry.terminal, data)


def resize(connection: AgentConnection, params: ResizeRequest) -> Empty:
    """`_acpterm/terminal/resize`: set the size that a terminal has while no window is attached."""
    entry = connection.find_session(params).owned(params.terminal_id, "resized")
    return terminal_ops.resize(connection.host.windows, entry, params.cols, params.rows)


def signal(
    connection: AgentConnection, params: SignalRequest
) -> Empty | Coroutine[None, None, Empty]:
    """`_acpterm/terminal/signal`: send a signal to the terminal's foreground process group."""
    entry = connection.find_session(params).owned(params.terminal_id, "signalled")
    return terminal_ops.signal(entry.terminal, params.signal)


def promote(connection: AgentConnection, params: TerminalRequest) -> TerminalInfo:
    """`_acpterm/terminal/promote`: give the terminal to the user. Idempotent.

    The agent can then only read the terminal and release its id. The terminal's timeout and its
    limit `idle` do not apply any more.
    """
    entry = connection.find_session(params).readable(params.terminal_id)
    connection.host.registry.promote(entry, EndedBy.AGENT)
    return agents_info(connection.host, entry)
