"""The handlers of the user's methods about the policy for agents: check a command, list profiles.

They run no command, and write nothing to the audit log.
"""

from msgspec.structs import asdict

from acpterm.acp.user_api import NoParams
from acpterm.acp.user_review import (
    ProfileInfo,
    ProfilesResponse,
    UserCheckRequest,
    UserCheckResponse,
)
from acpterm.host.launch.validation import check_absolute, check_command, check_size
from acpterm.host.policy import checked
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INTERNAL_ERROR, RpcError
from acpterm.policy.rules import RulesError
from acpterm.runtime.shell import find_shell


def check(user: UserConnection, params: UserCheckRequest) -> UserCheckResponse:
    """`_acpterm/command/check`: return how a command would be judged if an agent requested it.

    Raises `RpcError`: -32602 for an invalid command or directory, or an unknown profile; -32603 if
    the file of rules is invalid.
    """
    check_command(params.command, params.args)
    check_size(params.command, params.args, {}, user.context.rlimits)
    if params.cwd is not None:
        check_absolute(params.cwd)
    policy = user.policy
    profile = policy.profiles.choose(params.profile, params.cwd or user.context.cwd)
    try:
        judge = policy.judge()
    except RulesError as error:
        raise RpcError(INTERNAL_ERROR, f"no command can be judged: {error}") from error
    path, shell = user.context.env.get("PATH"), find_shell(user.settings.shell)
    verdict = judge.judge(params.command, params.args, profile=profile, path=path, shell=shell)
    prefix = None if verdict.prefix is None else list(verdict.prefix)
    return UserCheckResponse(**asdict(checked(verdict, profile)), prefix=prefix)


def profiles(user: UserConnection, params: NoParams) -> ProfilesResponse:
    """`_acpterm/profile/list`: return the profiles, and which is the default one."""
    del params
    found = user.policy.profiles.by_name
    return ProfilesResponse(
        selected=user.settings.profile,
        profiles=[
            ProfileInfo(name, one.safe, one.unknown, one.dangerous) for name, one in found.items()
        ],
    )
