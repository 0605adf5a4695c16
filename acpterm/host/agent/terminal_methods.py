"""The handler of `terminal/create` (ACP v1, "Terminals").

A handler that has to wait returns a coroutine, which the connection runs in a separate task.

The handler of `_acpterm/command/check`, which judges a command without running it.

If the params have `ask`, the user is asked in the same way as for `terminal/create`: the question
is withdrawn when the request or the turn is cancelled, and continued when the request is repeated
after a reconnect.
"""

from collections.abc import Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from msgspec import UNSET

from acpterm.acp.agent_api import CheckRequest, CheckResponse
from acpterm.acp.agent_meta import OWN, CreatedMeta, CreateMeta, own_meta, variable_of
from acpterm.acp.terminal import CreateTerminalRequest, CreateTerminalResponse
from acpterm.host.agent import gate
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.creates import recognisable_id
from acpterm.host.agent.gate import BLOCKED
from acpterm.host.entry import TerminalEntry
from acpterm.host.launch.launch import Creator, Judgement, Launch
from acpterm.host.launch.placement import resources_of
from acpterm.host.launch.validation import check_absolute, directory_of
from acpterm.host.policy import checked
from acpterm.host.state.records import RequestId
from acpterm.host.terminal_info import cwd_gone
from acpterm.host.verbs import check_screen
from acpterm.jsonrpc import REQUEST_CANCELLED, Id, RpcError, readable
from acpterm.providers.provider import is_place
from acpterm.terminal.status import EndedBy


def check(
    connection: AgentConnection, params: CheckRequest, request_id: Id
) -> Coroutine[Any, Any, CheckResponse]:
    """`_acpterm/command/check`: judge a command as `terminal/create` would, without running it."""
    with gate.recording_refusal(connection, params):
        if (asked := directory_of(params.cwd, params.cwd_bytes)) is not None:
            check_absolute(asked)
        session = connection.session(params.session_id)
        cwd = asked or connection.default_directory(session)
        judgement = gate.judge_check(connection, session, params, cwd)
    turn, request = session.cancelled, recognisable_id(request_id)

    async def decide() -> CheckResponse:
        nonlocal judgement
        with gate.recording_refusal(connection, params):
            if asked is None and not is_place(judgement.provider):
                found = await connection.directories.nearest(cwd)
                if found != cwd:
                    judgement = gate.judge_check(connection, session, params, found)
            judge = partial(gate.judge_check, connection, session, params, judgement.cwd)
            judgement = await gate.settle(connection, session, params, judgement, judge)
            if not params.ask:
                return _response(judgement)
            if judgement.verdict.decision == "allow":
                await gate.begin(connection, judgement)
                return _response(judgement)
            await connection.creates.wait_in_flight(request)
            with connection.creates.in_flight(request):
                if session.cancelled == turn:
                    await gate.admit(connection, session, params, judgement, request)
            # The turn may have been cancelled since the user answered.
            if session.cancelled != turn:
                raise RpcError(REQUEST_CANCELLED, "cancelled with the turn")
            await gate.begin(connection, judgement)
        response = _response(judgement)
        response.decision = "allow"
        return response

    return decide()


def _response(judgement: Judgement) -> CheckResponse:
    response = checked(judgement.verdict, judgement.profile)
    response.level = judgement.level.value
    if judgement.profile.short_messages and response.decision == "deny":
        # A profile with `short_messages` does not reveal the reason and the rule of a refusal.
        response.reason, response.rule, response.kind = BLOCKED, UNSET, UNSET
        for part in response.parts:
            part.reason = ""
    return response


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
    """Judge a create request now; return what asks the user if needed, and starts the command.

    `request` is None if a repetition cannot be recognised by the request's JSON-RPC id.
    """
    options = own_meta(params.meta, CreateMeta) or CreateMeta()
    session = connection.session(params.session_id)
    asked = directory_of(params.cwd, options.cwd_bytes)
    # Evaluated now: later requests of the agent must not affect this terminal.
    cwd = asked or connection.default_directory(session)
    launch = Launch(
        settings=connection.settings,
        context=connection.context,
        command=params.command,
        args=params.args,
        env=dict(map(variable_of, params.env)),
        cwd=cwd,
        options=options,
        output_bytes=params.output_byte_limit,
    )
    launch.check()
    judgement = gate.judge_create(connection, session, params, options, cwd)
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
            with (
                connection.creates.in_flight(request),
                connection.registry.reserve_name(options.name) as name,
            ):
                if not is_place(judgement.provider):
                    found = await _existing(connection, asked, cwd)
                    if found != cwd:
                        # What is allowed in a directory that is gone is not allowed in its parent.
                        judgement = gate.judge_create(connection, session, params, options, found)
                        launch = replace(launch, cwd=found, cwd_gone=cwd)
                judge = partial(
                    gate.judge_create, connection, session, params, options, judgement.cwd
                )
                judgement = await gate.settle(connection, session, params, judgement, judge)
                if session.cancelled != turn:
                    raise _cancelled()
                launch.check_provider(judgement.provider)
                placement = gate.placement(
                    connection, session, judgement, resources_of(options.resources)
                )
                await gate.admit(connection, session, params, judgement, request)
                # Again after a question: the user may have taken hours to answer.
                unkept = await gate.begin(connection, judgement)
                if session.cancelled != turn:
                    raise _cancelled()
                creator = Creator(
                    connection=connection.id,
                    secret=connection.secret,
                    rights=connection.rights(session),
                    agent=connection.agent.name,
                    session=session.id,
                    request=request,
                )
                launch = replace(launch, name=name, judgement=judgement, creator=creator)
                with connection.guard.quotas.starting(judgement.profiles, connection, session.id):
                    terminal, record = await launch.start(
                        connection.terminals.pool, placement, connection.writer
                    )
                    # Even if the turn was cancelled meanwhile, the program counts as started.
                    record.unkept = unkept
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


async def _existing(connection: AgentConnection, asked: str | None, cwd: str) -> str:
    """Return `asked`, or else the nearest directory to the session's, `cwd`, that exists."""
    if asked is None:
        return await connection.directories.nearest(cwd)
    await connection.directories.check(asked)
    return asked


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
