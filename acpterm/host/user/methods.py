"""The dispatch table of the user's socket: each method with its params and its handler.

A connection that `user.admission` refuses is not closed. It is served with the table that
`refusing` returns, so that every request is answered with the reason.

The handlers of the user's methods about the policy for agents: check a command, list profiles.

They run no command, and write nothing to the audit log.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from typing import NoReturn

from msgspec.structs import asdict

from acpterm.acp.approvals import ANSWER, AnswerRequest, ApproverRequest, SubscribeApprovalsRequest
from acpterm.acp.initialize import InitializeRequest
from acpterm.acp.shares import ShareCreateRequest, ShareRevokeRequest
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import (
    GetRequest,
    ListRequest,
    NoParams,
    RenameRequest,
    UserCreateRequest,
    UserReadRequest,
    UserResizeRequest,
    UserSignalRequest,
    UserTerminalRequest,
    UserWriteRequest,
)
from acpterm.acp.user_review import (
    AuditReadRequest,
    ProfileInfo,
    ProfilesResponse,
    RecordingReadRequest,
    UserCheckRequest,
    UserCheckResponse,
)
from acpterm.acp.user_streams import (
    AttachRequest,
    EventsRequest,
    ExportRequest,
    FollowRequest,
    SubscribeRequest,
    WindowRequest,
)
from acpterm.acp.user_undo import UndoPlanRequest, UndoRequest, UndoRestoreRequest
from acpterm.acp.web_api import TokenCreateRequest, TokenRemoveRequest, WebOpenRequest
from acpterm.host import verbs
from acpterm.host.launch.validation import check_absolute, check_command, check_size
from acpterm.host.loss_facts import LossFacts
from acpterm.host.policy import checked, settled
from acpterm.host.server.dispatch import Method, MethodTable
from acpterm.host.user import (
    approval_methods,
    daemon_methods,
    launch_methods,
    review_methods,
    terminal_methods,
    undo_methods,
    web_methods,
)
from acpterm.host.user.connection import UserConnection
from acpterm.jsonrpc import INTERNAL_ERROR, INVALID_REQUEST, RpcError
from acpterm.policy.rules import RulesError
from acpterm.runtime.command_line import find_shell


async def check(user: UserConnection, params: UserCheckRequest) -> UserCheckResponse:
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
    directory = params.cwd or user.context.cwd
    path, shell = user.context.env.get("PATH"), find_shell(user.settings.shell)
    again = partial(
        judge.judge,
        params.command,
        params.args,
        profile=profile,
        path=path,
        shell=shell,
        directory=directory,
    )
    home = user.context.env.get("HOME", "")
    verdict = await settled(again(), again, LossFacts(directory, home=home))
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


USER_METHODS = MethodTable(
    {
        "initialize": Method(InitializeRequest, daemon_methods.initialize),
        "_acpterm/terminal/list": Method(ListRequest, terminal_methods.list_all),
        "_acpterm/terminal/get": Method(GetRequest, verbs.get),
        "_acpterm/terminal/create": Method(UserCreateRequest, launch_methods.create),
        "_acpterm/terminal/read": Method(UserReadRequest, verbs.read),
        "_acpterm/terminal/output": Method(UserTerminalRequest, terminal_methods.output),
        "_acpterm/terminal/follow": Method(FollowRequest, terminal_methods.follow),
        "_acpterm/terminal/write": Method(UserWriteRequest, verbs.write, acts_first=True),
        "_acpterm/terminal/resize": Method(UserResizeRequest, verbs.resize),
        "_acpterm/terminal/rename": Method(RenameRequest, terminal_methods.rename),
        "_acpterm/terminal/inspect": Method(UserTerminalRequest, launch_methods.inspect),
        "_acpterm/terminal/restart": Method(UserTerminalRequest, launch_methods.restart),
        "_acpterm/terminal/signal": Method(UserSignalRequest, verbs.signal),
        "_acpterm/terminal/wait": Method(UserTerminalRequest, terminal_methods.wait),
        "_acpterm/terminal/kill": Method(UserTerminalRequest, verbs.kill, result_at_once=Empty()),
        "_acpterm/terminal/release": Method(
            UserTerminalRequest, verbs.release, result_at_once=Empty()
        ),
        "_acpterm/terminal/promote": Method(UserTerminalRequest, verbs.promote),
        "_acpterm/terminal/screen": Method(UserTerminalRequest, verbs.screen),
        "_acpterm/terminal/attach": Method(AttachRequest, terminal_methods.attach),
        "_acpterm/terminal/window": Method(WindowRequest, terminal_methods.window),
        "_acpterm/terminal/export": Method(ExportRequest, terminal_methods.export),
        "_acpterm/session/list": Method(NoParams, daemon_methods.sessions),
        "_acpterm/session/subscribe": Method(SubscribeRequest, daemon_methods.subscribe),
        "_acpterm/approval/list": Method(NoParams, approval_methods.list_pending),
        ANSWER: Method(AnswerRequest, approval_methods.answer),
        "_acpterm/approval/subscribe": Method(
            SubscribeApprovalsRequest, approval_methods.subscribe
        ),
        "_acpterm/approver": Method(ApproverRequest, approval_methods.approver),
        "_acpterm/command/check": Method(UserCheckRequest, check),
        "_acpterm/profile/list": Method(NoParams, profiles),
        "_acpterm/audit/read": Method(AuditReadRequest, review_methods.read_audit),
        "_acpterm/recording/list": Method(NoParams, review_methods.list_recordings),
        "_acpterm/recording/read": Method(RecordingReadRequest, review_methods.read_recording),
        "_acpterm/undo/list": Method(UndoRequest, undo_methods.list_snapshots),
        "_acpterm/undo/plan": Method(UndoPlanRequest, undo_methods.plan),
        "_acpterm/undo/restore": Method(UndoRestoreRequest, undo_methods.restore),
        "_acpterm/events": Method(EventsRequest, daemon_methods.events, acts_first=True),
        "_acpterm/web/open": Method(WebOpenRequest, web_methods.open_page, acts_first=True),
        "_acpterm/web/status": Method(NoParams, web_methods.status),
        "_acpterm/token/create": Method(TokenCreateRequest, web_methods.create_token),
        "_acpterm/token/list": Method(NoParams, web_methods.tokens),
        "_acpterm/token/remove": Method(TokenRemoveRequest, web_methods.remove_token),
        "_acpterm/share/create": Method(ShareCreateRequest, web_methods.share, acts_first=True),
        "_acpterm/share/list": Method(NoParams, web_methods.shares),
        "_acpterm/share/revoke": Method(ShareRevokeRequest, web_methods.revoke_share),
        "_acpterm/status": Method(NoParams, daemon_methods.status),
        "_acpterm/restart": Method(NoParams, daemon_methods.restart),
        "_acpterm/shutdown": Method(NoParams, daemon_methods.shutdown),
    },
    {},
)


def refusing(reason: str) -> MethodTable:
    """Return a dispatch table in which every method raises `RpcError` (-32600) with `reason`."""

    def refuse(*_: object) -> NoReturn:
        raise RpcError(INVALID_REQUEST, f"this is the user's endpoint: {reason}")

    return MethodTable(_EveryName(Method(NoParams, refuse)), {})


class _EveryName(Mapping[str, Method]):
    def __init__(self, method: Method) -> None:
        self._method = method

    def __getitem__(self, name: str) -> Method:
        return self._method

    def __iter__(self) -> Iterator[str]:
        return iter(())

    def __len__(self) -> int:
        return 0
