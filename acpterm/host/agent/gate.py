"""Decides on each `terminal/create` and `_acpterm/command/check` of an agent.

The steps of a create, in order, before anything is started; each can refuse the request with an
`RpcError` that says why:

1. `judge_create`: the rules and all profiles of the connection judge the command: first the profile
   that the user has chosen or the settings select, then those that the client has requested for
   itself. The strictest decision counts, so a requested profile can only make the result stricter.
   The provider that the agent requests may not be looser than that of the profiles. The number and
   the rate of terminals are checked (`guard`).
2. `settle`: if the command may lose something, whether it would is found out, and step 1 is
   repeated with that. Only then the judgement is recorded, and a denial is raised.
3. `placement`: provider, writable directory and network of the program are determined.
4. `admit`: if the decision is *ask*, the user is asked, and the request waits for the answer.
   Cancelling the request withdraws the question.

A check has the steps `judge_check`, `settle` and `admit`, and starts nothing. Everything is written
to the audit log, refusals too.

With the setting `short_messages` of a profile, no error contains the verdict's reason and rule. A
refusal by the user has only the user's own words. All other refusals begin with `BLOCKED`.
"""

import shlex
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import Final, TypeAlias

import msgspec
import trio

from acpterm.acp.agent_api import CheckRequest
from acpterm.acp.agent_meta import CreateMeta
from acpterm.acp.terminal import CreateTerminalRequest
from acpterm.config.places import SlurmResources
from acpterm.config.profiles import Profile
from acpterm.host.agent.approvals import expire_unclaimed
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.approvals import new_id, to_rpc_error
from acpterm.host.audit_trail import agent_fields, command_fields
from acpterm.host.launch.launch import Judgement
from acpterm.host.launch.placement import (
    Placement,
    allowed_places,
    directory_text,
    stricter,
    strictest,
)
from acpterm.host.launch.validation import check_command, check_size
from acpterm.host.loss_facts import Findings, Judging, LossFacts, Where
from acpterm.host.policy import settled
from acpterm.host.sessions.session import Session
from acpterm.host.snapshots import BUSY, DELAY_MAX_S
from acpterm.host.state.records import RequestId
from acpterm.host.way_back import Kept
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, REQUEST_CANCELLED, RpcError, quote
from acpterm.policy.approvals import ApprovalError
from acpterm.policy.judge import deciding
from acpterm.policy.losses.loss import NO_FINDINGS, Finding, Loss, Need
from acpterm.policy.questions import Answer, Question
from acpterm.policy.rules import RulesError
from acpterm.policy.syntax.readers import reader_of
from acpterm.policy.verdict import Level, Verdict, worst
from acpterm.policy.verdict import strictest as strictest_decision
from acpterm.providers.provider import ENGINES, is_place
from acpterm.runtime.command_line import command_line, find_shell, shell_line
from acpterm.undo.scan import FILES_ONLY

Params: TypeAlias = CreateTerminalRequest | CheckRequest

BLOCKED: Final = "Command blocked for security reasons"
"""The beginning of the message of refusals by a profile with `short_messages`."""
# The user sees the whole command: a longer one is refused.
COMMAND_CHARS_MAX: Final = 16 * 1024
# A question waits for the user anyway, so it can wait longer for a snapshot than a command.
_KEEP_MAX_S: Final = 2.0
_HARMLESS: Final = Profile(name="@harmless", safe_commands=["@harmless"])


def judge_create(  # noqa: PLR0917  `settle` calls it again with the findings
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest,
    options: CreateMeta,
    cwd: str,
    findings: Findings = NO_FINDINGS,
) -> Judgement:
    """Judge a create request, which `Launch.check` has checked, and check the quotas.

    Raises `RpcError`: -32600 if the command is denied, -32603 if a limit is reached. Also raises
    the errors of `judge`.
    """
    env = {item.name: item.value for item in params.env}
    judgement = judge(connection, session, params, cwd, env=env, options=options, findings=findings)
    if judgement.pending:
        return judgement
    _record(connection, session, params, judgement, "create")
    if judgement.verdict.decision == "deny":
        raise _denial(judgement)
    for profile in judgement.profiles:
        connection.guard.quotas.check(profile, connection, session.id)
    return judgement


def judge_check(
    connection: AgentConnection,
    session: Session,
    params: CheckRequest,
    cwd: str,
    findings: Findings = NO_FINDINGS,
) -> Judgement:
    """Judge a command that is only to be checked.

    Raises `RpcError` (-32600) if the command is denied and the request has `ask`, and -32602 if no
    program can be given it. Also raises the errors of `judge`.
    """
    # The size is checked first, since the duration of the judgement grows with it.
    check_size(params.command, params.args, {}, connection.context.rlimits)
    check_command(params.command, params.args)
    judgement = judge(connection, session, params, cwd, findings=findings)
    if judgement.pending:
        return judgement
    _record(connection, session, params, judgement, "check")
    if params.ask and judgement.verdict.decision == "deny":
        raise _denial(judgement)
    return judgement


async def settle(
    connection: AgentConnection,
    session: Session,
    params: Params,
    judgement: Judgement,
    again: Judging[Judgement],
) -> Judgement:
    """Find out whether the losses that `judgement` suspects would happen, and judge again."""
    if not judgement.pending:
        return judgement
    provider = judgement.provider
    where: Where = "here"
    if provider.startswith("ssh:"):
        where = "elsewhere"
    elif provider != "local" and not is_place(provider):
        where = "isolated"
    facts = LossFacts(
        judgement.cwd,
        root=connection.workspace(session) or connection.directory,
        where=where,
        home=connection.context.env.get("HOME", ""),
    )
    try:
        return await settled(judgement, again, facts)
    except trio.Cancelled:
        event = "check" if isinstance(params, CheckRequest) else "create"
        _record(connection, session, params, judgement, event)
        raise


def judge(
    connection: AgentConnection,
    session: Session,
    params: Params,
    cwd: str,
    *,
    env: Mapping[str, str] | None = None,
    options: CreateMeta | None = None,
    findings: Findings = NO_FINDINGS,
) -> Judgement:
    """Return the judgement on a command in the directory `cwd`.

    Raises `RpcError`: -32602 for a provider that is not allowed; -32603 if the file of rules is
    invalid, or if a profile cannot be selected or does not exist.
    """
    options = options or CreateMeta()
    profiles = connection.profiles
    network = all(profile.network for profile in profiles)
    selected = strictest(
        profiles[0].provider or connection.settings.provider,
        [profile.provider for profile in profiles[1:]],
        network=network,
    )
    places = allowed_places(connection.settings.places, [profile.places for profile in profiles])
    used = stricter(selected, options.provider, network=network, places=places)
    command, args = params.command, params.args
    if options.shell and args is not None:
        command, args = shell_line(command, args), None
    elif options.shell is False:
        args = args or []
    try:
        judge_of_rules = connection.policy.judge()
    except RulesError as error:
        raise RpcError(
            INTERNAL_ERROR,
            f"no command can be judged, so none is run: {error}; the user has to correct the file",
        ) from error
    # What a profile calls safe by its name may change files.
    is_kept = connection.guard.snapshots.is_on and not is_place(used)
    verdicts = [
        judge_of_rules.judge(
            command,
            args,
            profile=profile,
            env=env or {},
            path=connection.context.env.get("PATH"),
            allowed=session.allowed_prefixes(directory_text(used, cwd)),
            shell=_shell(connection, used),
            directory=connection.workspace(session) or "",
            cwd=cwd,
            findings=findings,
        )
        for profile in (*profiles, *([_HARMLESS] if is_kept else ()))
    ]
    is_harmless = not is_kept or verdicts.pop().level is Level.SAFE
    # Where the loss is allowed anyway, nothing is found out.
    pending = [
        loss
        for profile, verdict in zip(profiles, verdicts, strict=True)
        for loss in verdict.pending
        if loss.need is Need.ALIAS or profile.decision_on(loss.kind) != "allow"
    ]
    decision = strictest_decision(verdict.decision for verdict in verdicts)
    deciding = [
        (profile, verdict)
        for profile, verdict in zip(profiles, verdicts, strict=True)
        if verdict.decision == decision
    ]
    # Errors and questions give the reasons of this profile.
    profile, verdict = deciding[-1] if decision == "deny" else deciding[0]
    return Judgement(
        profiles=profiles,
        profile=profile,
        verdict=verdict,
        level=worst(one.level for one in verdicts),
        is_harmless=is_harmless,
        must_use_shell=any(_must_use_shell(one) for one in verdicts),
        provider=used,
        cwd=cwd,
        pending=tuple(dict.fromkeys(pending)),
        lost=_all_lost([one for _, one in deciding]),
    )


def _all_lost(verdicts: Sequence[Verdict]) -> Mapping[Loss, Finding] | None:
    lost: dict[Loss, Finding] = {}
    for verdict in verdicts:
        if verdict.lost is None:
            return None
        lost |= verdict.lost
    return lost


def _deciding(params: Params) -> list[str]:
    """Return the variables of a request that can change what its command executes."""
    if isinstance(params, CheckRequest):
        return []
    found = deciding({item.name: item.value for item in params.env})
    return [f"{name}={shlex.quote(value)}" for name, value in found.items()]


def shown_command(params: Params) -> str:
    """Return the command as the user is asked about it, with the variables that change it."""
    command = command_line(params.command, params.args)
    variables = _deciding(params)
    return f"export {' '.join(variables)}; {command}" if variables else command


def _shell(connection: AgentConnection, provider: str) -> str:
    """Return the shell that reads shell text with a provider."""
    shell = find_shell(connection.settings.shell)
    # An image or a place may have only sh.
    is_elsewhere = provider in ENGINES or is_place(provider)
    return "sh" if is_elsewhere and reader_of(shell) == "bash" else shell


def _must_use_shell(verdict: Verdict) -> bool:
    is_unknown = verdict.level == Level.UNKNOWN and verdict.rule is None
    return verdict.is_shell and not (is_unknown and verdict.decision == "allow")


def _record(
    connection: AgentConnection, session: Session, params: Params, judgement: Judgement, event: str
) -> None:
    verdict = judgement.verdict
    connection.trail.record(
        event,
        **agent_fields(connection.agent, session.id),
        **command_fields(params.command, params.args),
        directory=judgement.cwd,
        provider=judgement.provider,
        profile=judgement.profile.name,
        level=judgement.level,
        rule=verdict.rule,
        kind=verdict.kind,
        reason=verdict.reason if verdict.kind else None,
        decision=verdict.decision,
        variables=command_fields("", _deciding(params))["args"] or None,
    )


@contextmanager
def recording_refusal(connection: AgentConnection, params: Params) -> Iterator[None]:
    """If the block raises `RpcError`, record in the audit log that the command was refused."""
    try:
        yield
    except RpcError as error:
        connection.trail.record(
            "refused",
            **agent_fields(connection.agent, params.session_id),
            **command_fields(params.command, params.args),
            reason=error.message,
        )
        raise


def placement(
    connection: AgentConnection,
    session: Session,
    judgement: Judgement,
    resources: SlurmResources | None,
) -> Placement:
    """Return the placement of a program. `resources` are what the request asks of a cluster.

    Raises `RpcError`: -32600 if the provider isolates the program, but there is no directory in
    which the program may write; -32603 if the provider cannot be used; -32602 if the agent may not
    ask for `resources`.
    """
    # The directory that the request names is not writable as such: the agent chose it.
    provider, workspace = judgement.provider, connection.workspace(session)
    if workspace is None and provider != "local" and not is_place(provider):
        raise RpcError(
            INVALID_REQUEST,
            f"the command was not run: the user's client has not opened the session "
            f"{quote(session.id)}, so the provider {provider!r} cannot let it write anywhere; use "
            "the id of a session that session/new, session/load or session/resume has opened",
        )
    return connection.policy.placement(
        provider,
        workspace or connection.directory,
        network=judgement.has_network,
        session=connection.session_key(session),
        resources=resources,
    )


async def admit(
    connection: AgentConnection,
    session: Session,
    params: Params,
    judgement: Judgement,
    request: RequestId | None,
) -> None:
    """Return once the user allows the command; at once if the decision is not *ask*.

    `request` is the JSON-RPC id of the agent's request (`creates.recognisable_id`). Raises
    `RpcError`: -32600 if the command is refused, or too long to show it to the user; -32800 if the
    question was withdrawn; -32602 if too many questions are pending. Cancelling the call withdraws
    the question, unless the client is expected to repeat the request.
    """
    profile, verdict = judgement.profile, judgement.verdict
    if verdict.decision != "ask":
        return
    command = shown_command(params)
    if len(command) > COMMAND_CHARS_MAX:
        raise _too_long_to_ask(judgement, len(command))
    is_dangerous = verdict.level == Level.DANGEROUS
    kept, can_undo = Kept(None), False
    if is_dangerous and not judgement.is_harmless:
        snapshots, cwd = connection.guard.snapshots, judgement.cwd
        kept = await snapshots.keep(cwd, judgement.provider, max_s=_KEEP_MAX_S)
        home = connection.context.env.get("HOME", "")
        can_undo = await snapshots.brings_back(judgement.lost, kept, cwd, home)
    timeout_s = profile.dangerous_timeout if is_dangerous else profile.unknown_timeout
    question = Question(
        id=new_id(),
        connection=connection.id,
        request=request,
        session=session.id,
        agent=connection.agent.name,
        command=command,
        directory=judgement.where,
        level=verdict.level,
        reason=verdict.reason + _way_back(kept.why, can_undo=can_undo),
        # An empty prefix would stand for all commands.
        prefix=verdict.prefix or None,
        fingerprint=_fingerprint(connection, params, judgement.cwd),
        asked_time=time.time(),
        can_undo=can_undo,
    )
    answer = await _ask(connection, session, judgement, question, timeout_s or None)
    connection.trail.record(
        "decision",
        **agent_fields(connection.agent, session.id),
        **command_fields(params.command, params.args),
        variables=command_fields("", _deciding(params))["args"] or None,
        decision=answer.decision,
        by=answer.by,
        scope=answer.scope,
        reason=answer.reason or None,
    )
    if not answer.is_allowed:
        raise _refusal(judgement, answer, timeout_s)


def _way_back(unkept: str | None, *, can_undo: bool) -> str:
    if can_undo:
        return "; acpterm undo can bring back all of it"
    if unkept == BUSY:
        return "; its snapshot for acpterm undo is not complete yet"
    return f"; no undo: {unkept}" if unkept not in (None, "", FILES_ONLY) else ""


async def begin(connection: AgentConnection, judgement: Judgement) -> str | None:
    """Keep the directory of a command that starts now, within 0.3 s, or 2 s if it was asked about.

    Return why there is no way back, `FILES_ONLY`, "", or None if none is meant.
    """
    if judgement.is_harmless:
        return None
    # The question may have promised a way back.
    max_s = _KEEP_MAX_S if judgement.verdict.decision == "ask" else DELAY_MAX_S
    return await connection.guard.snapshots.begin(judgement.cwd, judgement.provider, max_s=max_s)


async def _ask(
    connection: AgentConnection,
    session: Session,
    judgement: Judgement,
    question: Question,
    timeout_s: float | None,
) -> Answer:
    """Ask the user, or return an earlier answer that applies to the command.

    When the client has reconnected, after a take-over or a lost transport, it repeats the request.
    Then this continues the earlier question, or returns the answer that the user has given
    meanwhile.
    """
    approvals, request = connection.approvals, question.request
    earlier = approvals.unclaimed(connection.id, request, question.fingerprint)
    if earlier is None and (decided := session.decided(question)):
        return decided
    question = earlier or question
    try:
        answer = await approvals.ask(
            question,
            timeout=timeout_s,
            unattended=judgement.profile.unattended if connection.guard.reaches_user else "refuse",
            is_repeated=lambda: connection.creates.is_repeatable(request),
        )
    except ApprovalError as error:
        raise to_rpc_error(error) from error
    except trio.Cancelled:
        if connection.creates.is_repeatable(request):
            # The wait that began with the resumption may have ended before this request did.
            connection.terminals.start_task(expire_unclaimed, connection)
        raise
    session.remember(question, answer)
    return answer


def _fingerprint(connection: AgentConnection, params: Params, cwd: str) -> bytes:
    """Return a hash of everything that decides what the command does.

    A repeated request continues an earlier question only if the hash is the same.
    """
    context = connection.context
    env = sorted(context.env.items())
    rest = repr((cwd, context.cwd, context.umask, tuple(context.rlimits), env))
    return sha256(msgspec.json.encode(params) + rest.encode(errors="surrogatepass")).digest()


def _denial(judgement: Judgement) -> RpcError:
    if judgement.profile.short_messages:
        return RpcError(INVALID_REQUEST, BLOCKED)
    allow = _how_to_allow(judgement.verdict)
    remedy = f"; the user can {allow}" if allow else ""
    return RpcError(INVALID_REQUEST, f"the command was refused: {_about(judgement)}{remedy}")


def _too_long_to_ask(judgement: Judgement, length: int) -> RpcError:
    is_short = judgement.profile.short_messages
    refused = BLOCKED if is_short else f"the command was refused: {_about(judgement)}"
    return RpcError(
        INVALID_REQUEST,
        f"{refused}, and its {length} characters are too many to show them to the user "
        f"({COMMAND_CHARS_MAX} at most): write it to a file, and run that",
    )


def _refusal(judgement: Judgement, answer: Answer, timeout_s: float) -> RpcError:
    """Return the error for a command that `answer` has refused: why, and how to allow it."""
    why = f": {answer.reason}" if answer.reason else ""
    about = _about(judgement)
    is_short = judgement.profile.short_messages
    match answer.by:
        case "cancelled":
            return RpcError(REQUEST_CANCELLED, f"the command was not started{why}")
        case "timeout" | "unattended" if is_short:
            message = BLOCKED
        case "timeout":
            message = (
                f"the command was refused: {about}, and the user has not answered in time "
                f"({timeout_s:g} s)"
            )
        case "unattended":
            allow = _how_to_allow(judgement.verdict)
            message = (
                f"the command was refused: {about}, and the user cannot be asked{why}. The user "
                f"can {f'{allow}, ' if allow else ''}keep `acpterm approvals --follow` running to "
                "be asked, or choose another profile"
            )
        case _:
            message = f"the user has refused the command{why}"
            message += "" if is_short else f" ({about})"
    return RpcError(INVALID_REQUEST, message)


def _about(judgement: Judgement) -> str:
    """Say what decided: "the rule 'deny git push' applies (the remote is shared), in the …"."""
    verdict = judgement.verdict
    what = (
        f"it is {verdict.level}" if verdict.rule is None else f"the rule {verdict.rule!r} applies"
    )
    reasons = [verdict.reason] if verdict.reason else []
    if verdict.rule is None and verdict.is_computed:
        reasons.append("instead of $(…), `…` or a variable, write the text itself in single quotes")
    why = f" ({'; '.join(reasons)})" if reasons else ""
    return f"{what}{why}, in the profile {judgement.profile.name!r}"


def _how_to_allow(verdict: Verdict) -> str:
    if verdict.prefix is None:
        return ""
    return f"allow it with `acpterm policy allow -- {shlex.join(verdict.prefix)}`"
