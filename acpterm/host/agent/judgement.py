"""The judgement on a command that an agent requests, by all profiles that apply to it.

Each profile of the connection judges the command: first the profile that the user has chosen or the
settings select, then those that the client has requested for itself. The strictest decision counts,
so a requested profile can only make the result stricter. Of several profiles that come to this
decision, one counts (`Judgement.profile`): if the command is denied, the last of them, otherwise
the first. The errors and the question to the user give the reasons of this profile.
"""

from collections.abc import Iterable
from typing import NamedTuple

from acpterm.acp.agent_api import CheckRequest
from acpterm.acp.terminal import CreateTerminalRequest
from acpterm.config.profiles import Limits, Profile, lowest
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.launch.placement import (
    allowed_places,
    directory_text,
    stricter,
    strictest,
)
from acpterm.host.launch.validation import check_command, check_size
from acpterm.host.sessions.session import Session
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.policy.rules import RulesError
from acpterm.policy.syntax.readers import reader_of
from acpterm.policy.verdict import Level, Verdict, worst
from acpterm.policy.verdict import strictest as strictest_decision
from acpterm.providers.provider import ENGINES, is_place
from acpterm.pty.limits import RESOURCES
from acpterm.runtime.command_line import shell_line
from acpterm.runtime.shell import find_shell


class Judgement(NamedTuple):
    """The verdict on a command before the user is asked, and where and how its program may run."""

    profiles: tuple[Profile, ...]
    """The profiles that apply: the selected one, then those that were requested."""
    profile: Profile
    """The profile whose verdict counts."""
    verdict: Verdict
    """The verdict of `profile`."""
    level: Level
    """The most dangerous level in the verdicts of all profiles."""
    must_use_shell: bool
    """Whether the command may run only as shell text, since it was judged as shell text.

    If False, `launch.command` may take the whole text for the path of a program (unless the agent
    has requested shell text), although that program was not judged. So if the command was judged as
    shell text, this is False only if every profile has found it to be unknown, and allows unknown
    commands.
    """
    provider: str
    """The name of the provider that runs the program."""
    cwd: str
    """The directory in which the program starts."""

    @property
    def where(self) -> str:
        """Where the program runs, as text for the user: the place, if any, then the directory."""
        return directory_text(self.provider, self.cwd)

    @property
    def has_network(self) -> bool:
        """Whether all profiles allow the program to use the network.

        If False, sandboxes and containers deny the network; all other providers ignore this value.
        """
        return _have_network(self.profiles)

    @property
    def limits(self) -> Limits:
        """The limits of the terminal: for each limit, the lowest value of all profiles."""
        return lowest(profile.limits for profile in self.profiles)

    @property
    def refuses_unenforceable_limits(self) -> bool:
        """Whether the program must not start if a limit on its resources cannot be enforced."""
        return any(
            profile.unenforceable_limits == "refuse"
            and any(getattr(profile.limits, name) is not None for name in RESOURCES)
            for profile in self.profiles
        )

    def shell(self, requested: bool | None) -> bool | None:
        """Return whether the command runs as shell text; None if `launch.command` decides.

        `requested` is True if the agent has requested shell text, False if it has requested a
        program with arguments, and None if it has requested neither.
        """
        return True if requested is None and self.must_use_shell else requested


def judge(
    connection: AgentConnection,
    session: Session,
    params: CreateTerminalRequest | CheckRequest,
    cwd: str,
    *,
    provider: str | None = None,
    shell: bool | None = None,
) -> Judgement:
    """Return the judgement on a command in the directory `cwd`.

    `provider` is the provider that the agent requests; None if it requests none. `shell` is True if
    the agent requests that the command runs as shell text, False if it requests a program with
    arguments, and None if it requests neither.

    Raises `RpcError`: -32602 for an invalid command or provider; -32603 if the file of rules is
    invalid, or if a profile cannot be selected or does not exist.
    """
    check_command(params.command, params.args)
    # Check the size first: the duration of the judgement grows with it.
    env = {}
    if isinstance(params, CreateTerminalRequest):
        env = {item.name: item.value for item in params.env}
    check_size(params.command, params.args, env, connection.context.rlimits)
    profiles = connection.profiles
    network = _have_network(profiles)
    selected = strictest(
        profiles[0].provider or connection.settings.provider,
        [profile.provider for profile in profiles[1:]],
        network=network,
    )
    places = allowed_places(connection.settings.places, [profile.places for profile in profiles])
    used = stricter(selected, provider, network=network, places=places)
    command, args = params.command, params.args
    if shell and args is not None:
        command, args = shell_line(command, args), None
    elif shell is False:
        args = args or []
    try:
        judge_of_rules = connection.host.policy.judge()
    except RulesError as error:
        raise RpcError(
            INTERNAL_ERROR,
            f"no command can be judged, so none is run: {error}; the user has to correct the file",
        ) from error
    verdicts = [
        judge_of_rules.judge(
            command,
            args,
            profile=profile,
            env=env,
            path=connection.context.env.get("PATH"),
            allowed=session.allowed_prefixes(directory_text(used, cwd)),
            shell=_shell(connection, used),
        )
        for profile in profiles
    ]
    decision = strictest_decision(verdict.decision for verdict in verdicts)
    deciding = [
        (profile, verdict)
        for profile, verdict in zip(profiles, verdicts, strict=True)
        if verdict.decision == decision
    ]
    profile, verdict = deciding[-1] if decision == "deny" else deciding[0]
    return Judgement(
        profiles=profiles,
        profile=profile,
        verdict=verdict,
        level=worst(one.level for one in verdicts),
        must_use_shell=any(_must_use_shell(one) for one in verdicts),
        provider=used,
        cwd=cwd,
    )


def _shell(connection: AgentConnection, provider: str) -> str:
    """Return the shell that reads shell text with a provider.

    That is the shell of the settings; but where only sh exists, in an image or in a place, it may
    be sh.
    """
    shell = find_shell(connection.settings.shell)
    is_elsewhere = provider in ENGINES or is_place(provider)
    return "sh" if is_elsewhere and reader_of(shell) == "bash" else shell


def _have_network(profiles: Iterable[Profile]) -> bool:
    return all(profile.network for profile in profiles)


def _must_use_shell(verdict: Verdict) -> bool:
    is_unknown = verdict.level == Level.UNKNOWN and verdict.rule is None
    return verdict.is_shell and not (is_unknown and verdict.decision == "allow")
