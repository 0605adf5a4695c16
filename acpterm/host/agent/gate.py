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

from typing import Final, NamedTuple

from acpterm.acp.agent_api import CreateMeta
from acpterm.acp.terminal import CreateTerminalRequest
from acpterm.config.profiles import Profile
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.agent.session import Session
from acpterm.host.launch.command import shell_line, summary
from acpterm.host.launch.placement import Placement, stricter
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, RpcError
from acpterm.policy.judge import Level, Verdict
from acpterm.policy.rules import RulesError

# Characters of a command, and number of arguments, in the audit log.
_RECORDED_MAX: Final = 16 * 1024
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

        A line that was judged as safe shell text runs as such: a program whose path is the whole
        line, with its spaces, was not judged.
        """
        is_judged = self.verdict.is_shell and self.verdict.level == Level.SAFE
        return True if requested is None and is_judged else requested


def judge(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest,
    options: CreateMeta,
) -> Judgement:
    """Judge a create request. Raises `RpcError`: -32600 if the command is denied."""
    policy = connection.host.policy
    profile = connection.profile
    cwd = params.cwd or session.cwd or connection.context.cwd
    provider = stricter(profile.provider or connection.settings.provider, options.provider)
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
        env=[item.name for item in params.env],
        allowed=session.allowed_prefixes,
    )
    judgement = Judgement(profile, verdict, provider, cwd)
    connection.host.trail.request(
        "create",
        **identity(connection, session),
        command=params.command[:_RECORDED_MAX],
        args=None if params.args is None else [*params.args[:_RECORDED_MAX]],
        directory=cwd,
        provider=provider,
        profile=profile.name,
        level=verdict.level,
        rule=verdict.rule,
        decision=verdict.decision,
    )
    if verdict.decision == "deny":
        raise refusal(judgement, summary(params.command, params.args))
    connection.host.quotas.check(profile, connection, session.id)
    return judgement


def identity(connection: AgentConnection, session: Session) -> dict[str, str | None]:
    """Return the fields of the audit log that say which agent made a request."""
    return {
        "agent": connection.agent.name,
        "connection": connection.agent.connection_id,
        "session": session.id,
    }


def refusal(judgement: Judgement, command: str, why: str = "") -> RpcError:
    """Return the error for a refused command: the reason, the rule, and what would be allowed."""
    profile, verdict = judgement.profile, judgement.verdict
    if profile.short_messages:
        return RpcError(INVALID_REQUEST, _BLOCKED)
    rule = f", by the rule {verdict.rule}" if verdict.rule else ""
    reason = f": {verdict.reason}" if verdict.reason else ""
    remedy = ""
    if verdict.prefix:
        remedy = f"; the user can allow it: acpterm policy allow {' '.join(verdict.prefix)}"
    return RpcError(
        INVALID_REQUEST,
        f"the command {command!r} was refused{rule}{reason} (level {verdict.level}, profile "
        f"{profile.name!r}){why}{remedy}",
    )


def placement(connection: AgentConnection, session: Session, judgement: Judgement) -> Placement:
    """Return where the program runs.

    It may write in the session's directory, which the user's client has set, or else in the
    directory of the agent: never in one that the request names.
    """
    policy = connection.host.policy
    return Placement(
        provider=policy.provider(judgement.provider),
        workspace=connection.workspace(session),
        network=judgement.profile.network,
        hidden=policy.hidden,
    )
