"""Decides on each `terminal/create` and `_acpterm/command/check` of an agent.

The steps of a create, in order, before anything is started; each can refuse the request with an
`RpcError` that says why:

1. `judge_create`: the profiles of the connection are selected, and the command is judged by them
   and by the rules. The provider that the agent requests may not be looser than that of the
   profiles. The number and the rate of terminals are checked (`quotas`).
2. `placement`: the placement of the program is determined (provider, writable directory, network).
3. `admit`: if the decision is *ask*, the user is asked, and the request waits for the answer.
   Cancelling the request withdraws the question.

A check has the steps `judge_check` and `admit`, and starts nothing. Everything is written to the
audit log, refusals too.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256

import msgspec

from acpterm.acp.agent_api import CheckRequest
from acpterm.acp.agent_meta import CreateMeta
from acpterm.acp.terminal import CreateTerminalRequest
from acpterm.config.places import SlurmResources
from acpterm.host.agent.approvals import COMMAND_CHARS_MAX, Ask, ask_user
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.judgement import Judgement, judge
from acpterm.host.agent.refusals import denial, refusal, too_long_to_ask
from acpterm.host.audit_trail import agent_fields, command_fields
from acpterm.host.launch.placement import Placement
from acpterm.host.sessions.session import Session
from acpterm.host.state.records import RequestId
from acpterm.jsonrpc import INVALID_REQUEST, RpcError, quote
from acpterm.policy.verdict import Level
from acpterm.providers.provider import is_place
from acpterm.runtime.command_line import command_line


def judge_create(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest,
    options: CreateMeta,
    cwd: str,
) -> Judgement:
    """Judge a create request, and check the limits on the number and rate of terminals.

    `options` are the request's `_meta.acpterm`: they may request a provider, or that the command is
    shell text. `cwd` is the directory of the command. Raises `RpcError`: -32600 if the command is
    denied, -32603 if a limit is reached. Also raises the errors of `judge`.
    """
    judgement = judge(
        connection, session, params, cwd, provider=options.provider, shell=options.shell
    )
    _record(connection, session, params, judgement, "create")
    if judgement.verdict.decision == "deny":
        raise denial(judgement)
    for profile in judgement.profiles:
        connection.host.quotas.check(profile, connection, session.id)
    return judgement


def judge_check(
    connection: AgentConnection, session: Session, params: CheckRequest, cwd: str
) -> Judgement:
    """Judge a command that is only to be checked, in the directory `cwd`.

    Raises `RpcError` (-32600) if the command is denied and the request has `ask`. Also raises the
    errors of `judge`.
    """
    judgement = judge(connection, session, params, cwd)
    _record(connection, session, params, judgement, "check")
    if params.ask and judgement.verdict.decision == "deny":
        raise denial(judgement)
    return judgement


def _record(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest | CheckRequest,
    judgement: Judgement,
    event: str,
) -> None:
    """Record a judgement in the audit log; `event` is `create` or `check`."""
    verdict = judgement.verdict
    connection.host.trail.record(
        event,
        **agent_fields(connection.agent, session.id),
        **command_fields(params.command, params.args),
        directory=judgement.cwd,
        provider=judgement.provider,
        profile=judgement.profile.name,
        level=judgement.level,
        rule=verdict.rule,
        decision=verdict.decision,
    )


@contextmanager
def recording_refusal(
    connection: AgentConnection, params: CreateTerminalRequest | CheckRequest
) -> Iterator[None]:
    """If the block raises `RpcError`, record in the audit log that the command was refused."""
    try:
        yield
    except RpcError as error:
        connection.host.trail.record(
            "refused",
            **agent_fields(connection.agent, params.session_id),
            **command_fields(params.command, params.args),
            reason=error.message,
        )
        raise


async def admit(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest | CheckRequest,
    judgement: Judgement,
    request: RequestId | None,
) -> None:
    """Ask the user whether the command may run, if the decision in `judgement` is *ask*.

    Return once the user allows the command; at once if the decision is not *ask*. `request` is the
    JSON-RPC id of the agent's request (`creates.recognisable_id`).

    Raises `RpcError`: -32600 if the command is refused, or too long to show it to the user; -32800
    if the question was withdrawn; -32602 if too many questions are pending. Cancelling the call
    withdraws the question, unless the client is expected to repeat the request.
    """
    profile, verdict = judgement.profile, judgement.verdict
    if verdict.decision != "ask":
        return
    command = command_line(params.command, params.args)
    if len(command) > COMMAND_CHARS_MAX:
        raise too_long_to_ask(judgement, len(command), COMMAND_CHARS_MAX)
    is_dangerous = verdict.level == Level.DANGEROUS
    timeout_s = profile.dangerous_timeout if is_dangerous else profile.unknown_timeout
    ask = Ask(
        command=command,
        directory=judgement.where,
        level=verdict.level,
        reason=verdict.reason,
        prefix=verdict.prefix,
        fingerprint=_fingerprint(connection, params, judgement.cwd),
        timeout_s=timeout_s or None,
        unattended=profile.unattended,
    )
    answer = await ask_user(connection, session, request, ask)
    connection.host.trail.record(
        "decision",
        **agent_fields(connection.agent, session.id),
        **command_fields(params.command, params.args),
        decision=answer.decision,
        by=answer.by,
        scope=answer.scope,
        reason=answer.reason or None,
    )
    if not answer.is_allowed:
        raise refusal(judgement, answer, timeout_s)


def _fingerprint(
    connection: AgentConnection, params: CreateTerminalRequest | CheckRequest, cwd: str
) -> bytes:
    """Return a hash of everything that decides what the command does.

    A repeated request continues an earlier question only if the hash is the same. The hash of a
    check differs from that of a create, since their params differ. `cwd` is the directory in which
    the command starts.
    """
    context = connection.context
    env = sorted(context.env.items())
    rest = repr((cwd, context.cwd, context.umask, tuple(context.rlimits), env))
    return sha256(msgspec.json.encode(params) + rest.encode(errors="surrogatepass")).digest()


def placement(
    connection: AgentConnection,
    session: Session,
    judgement: Judgement,
    resources: SlurmResources | None,
) -> Placement:
    """Return the placement of a program.

    `resources` are what the request asks of a cluster; None if it asks for nothing. If the provider
    isolates the program, the program may write in the directory that `AgentConnection.workspace`
    returns, even if the request names another directory. Raises `RpcError`: -32600 if the provider
    isolates the program, but `AgentConnection.workspace` returns None; -32603 if the provider
    cannot be used; -32602 if the agent may not ask for `resources`.
    """
    provider, workspace = judgement.provider, connection.workspace(session)
    if workspace is None and provider != "local" and not is_place(provider):
        raise RpcError(
            INVALID_REQUEST,
            f"the command was not run: the user's client has not opened the session "
            f"{quote(session.id)}, so the provider {provider!r} cannot let it write anywhere; use "
            "the id of a session that session/new, session/load or session/resume has opened",
        )
    return connection.host.policy.placement(
        provider,
        workspace or connection.directory,
        network=judgement.has_network,
        session=connection.session_key(session),
        resources=resources,
    )
