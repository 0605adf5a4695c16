"""Decides on each `terminal/create` of an agent, before anything is started.

The steps, in order; each can refuse the request with an `RpcError` that says why:

1. `judge`: the profile of the connection is selected, and the command is judged by the rules. The
   provider that the agent requests may not be looser than that of the profile.
2. The number and the rate of terminals are checked (`quotas`).
3. `admit`: if the decision is *ask*, the user is asked, and the request waits for the answer.
   Cancelling the request withdraws the question.
4. `placement`: the provider that prepares the command.

Everything is written to the audit log, refusals too.
"""

import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Final, NamedTuple

import msgspec

from acpterm.acp.agent_api import CreateMeta
from acpterm.acp.terminal import CreateTerminalRequest
from acpterm.config.profiles import Profile
from acpterm.host.agent.approvals import COMMAND_CHARS_MAX, Ask, ask_user
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.session import Session
from acpterm.host.launch.command import shell_line
from acpterm.host.launch.placement import Placement, stricter
from acpterm.host.launch.validation import check_command, check_size
from acpterm.host.state.records import RequestId
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, REQUEST_CANCELLED, RpcError, quote
from acpterm.policy.levels import Level, Verdict
from acpterm.policy.questions import Answer
from acpterm.policy.rules import RulesError
from acpterm.runtime.command_line import command_line

# Characters of a command with its arguments in the audit log.
_RECORDED_CHARS: Final = 16 * 1024
_CUT: Final = "…"
# The message of refusals by a profile with `short_messages`.
_BLOCKED: Final = "Command blocked for security reasons"


class Judgement(NamedTuple):
    """What was decided about a create request before the user is asked."""

    profile: Profile
    verdict: Verdict
    provider: str
    """The name of the provider."""
    cwd: str

    def shell(self, requested: bool | None) -> bool | None:
        """Return whether the command is to run as shell text; None if the usual rules decide.

        A line runs as the shell text that was judged: a program whose path is the whole line, with
        its spaces, was not judged. But a line that is unknown, and may run as such, may as well be
        such a program.
        """
        verdict = self.verdict
        is_unknown = verdict.level == Level.UNKNOWN and verdict.rule is None
        if requested is None and verdict.is_shell:
            return None if is_unknown and verdict.decision == "allow" else True
        return requested


def judge(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest,
    options: CreateMeta,
) -> Judgement:
    """Judge a create request. Raises `RpcError`: -32600 if the command is denied."""
    check_command(params.command, params.args)
    # Before judging, whose duration grows with the size.
    env = {item.name: item.value for item in params.env}
    check_size((params.command, *(params.args or ())), env, connection.context.rlimits)
    policy = connection.host.policy
    profile = connection.profile
    cwd = params.cwd or session.cwd or connection.context.cwd
    provider = stricter(
        profile.provider or connection.settings.provider,
        options.provider,
        network=profile.network,
    )
    command, args = params.command, params.args
    if options.shell and args is not None:
        command, args = shell_line(command, args), None
    elif options.shell is False:
        args = args or []
    try:
        judge_of_rules = policy.judge()
    except RulesError as error:
        raise RpcError(
            INTERNAL_ERROR,
            f"no command can be judged, so none is run: {error}; the user has to correct the file",
        ) from error
    verdict = judge_of_rules.judge(
        command,
        args,
        profile=profile,
        env=env,
        path=connection.context.env.get("PATH"),
        allowed=session.allowed_prefixes(cwd),
    )
    judgement = Judgement(profile, verdict, provider, cwd)
    connection.host.trail.request(
        "create",
        **identity(connection, session),
        **recorded_command(params),
        directory=cwd,
        provider=provider,
        profile=profile.name,
        level=verdict.level,
        rule=verdict.rule,
        decision=verdict.decision,
    )
    if verdict.decision == "deny":
        raise _denial(judgement)
    connection.host.quotas.check(profile, connection, session.id)
    return judgement


def identity(connection: AgentConnection, session: Session) -> dict[str, str | None]:
    """Return the fields of the audit log that say which agent made a request."""
    return {
        "agent": connection.agent.name,
        "connection": connection.agent.connection_id,
        "session": session.id,
    }


def recorded_command(params: CreateTerminalRequest) -> dict[str, str | list[str] | None]:
    """Return the fields of the audit log for a command, cut to a limited length."""
    room = _RECORDED_CHARS - len(params.command)
    args: list[str] = []
    for arg in params.args or ():
        room -= len(arg) + 1
        if room < 0:
            args.append(_CUT)
            break
        args.append(arg)
    return {"command": _cut(params.command), "args": None if params.args is None else args}


def _cut(command: str) -> str:
    """Return a command of a limited length; a word that does not fit is left out.

    A part of a secret would not be recognised as one.
    """
    if len(command) <= _RECORDED_CHARS:
        return command
    return f"{command[:_RECORDED_CHARS].rpartition(' ')[0]} {_CUT}"


@contextmanager
def recording_refusal(connection: AgentConnection, params: CreateTerminalRequest) -> Iterator[None]:
    """Record in the audit log that the block raises `RpcError`: the command was not started."""
    try:
        yield
    except RpcError as error:
        connection.host.trail.request(
            "refused",
            agent=connection.agent.name,
            connection=connection.agent.connection_id,
            session=params.session_id[:_RECORDED_CHARS],
            **recorded_command(params),
            reason=error.message,
        )
        raise


async def admit(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest,
    judgement: Judgement,
    request: RequestId | None,
) -> None:
    """Return if the command may start; ask the user if the verdict says so.

    `request` is the JSON-RPC id of the request, if it can be recognised when it is repeated. Raises
    `RpcError`: -32600 if the command is refused, -32800 if the question was withdrawn. Cancelling
    this withdraws the question.
    """
    profile, verdict = judgement.profile, judgement.verdict
    if verdict.decision != "ask":
        return
    command = command_line(params.command, params.args)
    if len(command) > COMMAND_CHARS_MAX:
        raise RpcError(
            INVALID_REQUEST,
            f"the command was refused: {_about(judgement)}, and its {len(command)} characters are "
            f"too many to show them to the user ({COMMAND_CHARS_MAX} at most): write it to a file, "
            "and run that",
        )
    is_dangerous = verdict.level == Level.DANGEROUS
    timeout_s = profile.dangerous_timeout if is_dangerous else profile.unknown_timeout
    ask = Ask(
        command=command,
        directory=judgement.cwd,
        level=verdict.level,
        reason=verdict.reason,
        prefix=verdict.prefix,
        fingerprint=_fingerprint(connection, params, judgement.cwd),
        timeout_s=timeout_s or None,
        unattended=profile.unattended,
    )
    answer = await ask_user(connection, session, request, ask)
    connection.host.trail.request(
        "decision",
        **identity(connection, session),
        command=_cut(params.command),
        decision=answer.decision,
        by=answer.by,
        scope=answer.scope,
        reason=answer.reason or None,
    )
    if not answer.is_allowed:
        raise _refusal(judgement, answer, timeout_s)


def _fingerprint(connection: AgentConnection, params: CreateTerminalRequest, cwd: str) -> bytes:
    """Return a hash of everything that decides what the command does."""
    context = connection.context
    env = sorted(context.env.items())
    rest = repr((cwd, context.cwd, context.umask, tuple(context.rlimits), env))
    return sha256(msgspec.json.encode(params) + rest.encode(errors="surrogatepass")).digest()


def _denial(judgement: Judgement) -> RpcError:
    """Return the error for a command that the profile or a rule denies."""
    profile, verdict = judgement.profile, judgement.verdict
    if profile.short_messages:
        return RpcError(INVALID_REQUEST, _BLOCKED)
    allow = _how_to_allow(verdict)
    remedy = f"; the user can {allow}" if allow else ""
    return RpcError(INVALID_REQUEST, f"the command was refused: {_about(judgement)}{remedy}")


def _refusal(judgement: Judgement, answer: Answer, timeout_s: float) -> RpcError:
    """Return the error for a command that the answer to a question has refused.

    The message says who or what has refused it, and how the user can allow it.
    """
    why = f": {answer.reason}" if answer.reason else ""
    about = _about(judgement)
    match answer.by:
        case "cancelled":
            return RpcError(REQUEST_CANCELLED, f"the command was not started{why}")
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
            message = f"the user has refused the command{why} ({about})"
    return RpcError(INVALID_REQUEST, message)


def _about(judgement: Judgement) -> str:
    """Return the level of the command, the reason, the rule and the profile, for an error."""
    verdict = judgement.verdict
    reason = f" ({verdict.reason})" if verdict.reason else ""
    rule = f" by the rule {verdict.rule}" if verdict.rule else ""
    return f"it is {verdict.level}{reason}{rule}, in the profile {judgement.profile.name!r}"


def _how_to_allow(verdict: Verdict) -> str:
    if verdict.prefix is None:
        return ""
    return f"allow it with `acpterm policy allow -- {shlex.join(verdict.prefix)}`"


def placement(connection: AgentConnection, session: Session, judgement: Judgement) -> Placement:
    """Return where the program runs.

    It may write in the session's directory, which the user's client has set. If no client of the
    user opens the agent's sessions, it may write in the directory of the agent. It may never write
    in a directory that the request names. Raises `RpcError`: -32600 if the client has not opened
    the session, and the provider is not `local`; -32603 if the provider cannot be used.
    """
    provider, workspace = judgement.provider, connection.workspace(session)
    if workspace is None and provider != "local":
        raise RpcError(
            INVALID_REQUEST,
            f"the command was not run: the user's client has not opened the session "
            f"{quote(session.id)}, so the provider {provider!r} cannot let it write anywhere; use "
            "the id of a session that session/new, session/load or session/resume has opened",
        )
    return connection.host.policy.placement(
        provider, workspace or connection.directory, network=judgement.profile.network
    )
