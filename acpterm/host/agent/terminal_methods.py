"""The handler of `terminal/create` (ACP v1, "Terminals").

A handler that has to wait returns a coroutine, which the connection runs in a separate task.
"""

import math
from collections.abc import Coroutine
from typing import Any

from msgspec import UNSET

from acpterm.acp.agent_meta import OWN, CreatedMeta, CreateMeta, own_meta, variable_of
from acpterm.acp.terminal import (
    CreateTerminalRequest,
    CreateTerminalResponse,
)
from acpterm.host.agent import gate
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.creates import recognisable_id
from acpterm.host.agent.judgement import Judgement
from acpterm.host.entry import TerminalEntry
from acpterm.host.launch.command import summary
from acpterm.host.launch.placement import resources_of
from acpterm.host.launch.request import LaunchRequest
from acpterm.host.launch.validation import directory_of, seconds
from acpterm.host.sessions.session import Session
from acpterm.host.state.records import RequestId, TerminalRecord, pack_text
from acpterm.host.terminal_info import (
    cwd_gone,
)
from acpterm.host.verbs import check_screen
from acpterm.jsonrpc import REQUEST_CANCELLED, Id, RpcError, readable
from acpterm.providers.provider import is_place
from acpterm.terminal.status import EndedBy


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
