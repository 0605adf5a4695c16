"""The questions that the host asks the user through `acpterm proxy` or `acpterm prompt`.

The host sends questions only to an approver. A client of the daemon becomes an approver by a token.
It requests the token on the user's socket before it starts the agent, and sends it in `initialize`.
The token is neither in the command line nor in the environment, and is not logged. If the user's
socket does not exist, or the daemon refuses the client there (as it refuses every process in an
agent's terminal), the client gets no questions: the user can still answer with `acpterm approve`.

The host's notifications only change `pending`, the questions that have no answer yet. Each time
`wait_changed` returns, a task of the client compares `pending` with the questions that the client
has asked the user. So the memory is limited by the host's limit of pending questions, however fast
questions come and go.
"""

from typing import Final

import msgspec
import trio
from anyio.abc import ByteStream
from msgspec import Raw, UnsetType

from acpterm.acp.agent import PermissionOption
from acpterm.acp.approvals import (
    ANSWER,
    ASKED,
    DECLINE,
    PENDING,
    WITHDRAWN,
    AnswerRequest,
    ApprovalInfo,
    ApproverRequest,
    ApproverResponse,
    AskedNotification,
    Decision,
    DeclineRequest,
    PendingNotification,
    Scope,
    WithdrawnNotification,
)
from acpterm.client.sanitize import one_line
from acpterm.config import Settings
from acpterm.jsonrpc import NotificationReceived, RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.daemon_stream import Connected, connect_running
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import ignore
from acpterm.runtime.command_line import command_line

_TOKEN_TIMEOUT_S: Final = 10.0


class Questions:
    """The host's questions to the user.

    `request` has the params with which the client requests its token: where the user is asked, the
    agent's command, and the profile that the user has chosen.
    """

    def __init__(self, request: ApproverRequest) -> None:
        self.request: Final = request
        self.pending: Final[dict[str, ApprovalInfo]] = {}
        """The questions without an answer, by id, the oldest first."""
        self._changed: Final = trio.lowlevel.ParkingLot()

    def on_notification(self, notification: NotificationReceived) -> None:
        """Update `pending` by a notification of the host."""
        params = notification.params
        if isinstance(params, UnsetType) or params is None:
            return
        try:
            self._apply(notification.method, params)
        except msgspec.DecodeError:
            return  # a newer host may send another form
        self._changed.unpark_all()

    def _apply(self, method: str, params: Raw) -> None:
        if method == ASKED:
            info = msgspec.json.decode(params, type=AskedNotification).approval
            self.pending[info.approval_id] = info
        elif method == WITHDRAWN:
            withdrawn = msgspec.json.decode(params, type=WithdrawnNotification)
            self.pending.pop(withdrawn.approval_id, None)
        elif method == PENDING:
            found = msgspec.json.decode(params, type=PendingNotification).approvals
            self.pending.clear()
            self.pending.update({info.approval_id: info for info in found})

    async def wait_changed(self) -> None:
        """Wait until `pending` may have changed after this call."""
        await self._changed.park()

    def answer(self, host: Endpoint, identifier: str, decision: Decision, scope: Scope) -> None:
        """Send the host the user's answer to a question; `identifier` is the question's id."""
        host.call(ANSWER, AnswerRequest(identifier, decision, scope), ignore)

    def decline(self, host: Endpoint, identifier: str, reason: str) -> None:
        """Report to the host why the question cannot be put to the user here."""
        host.call(DECLINE, DeclineRequest(identifier, reason), ignore)


async def request_token(settings: Settings, request: ApproverRequest) -> str | None:
    """Return a token that makes a connection an approver; None if the daemon gives none."""
    token, refusal = None, "the daemon does not answer on the user's socket"
    try:
        stream = await connect_running(settings)
    except (DaemonError, OSError) as error:
        stream, refusal = None, str(error)
    if stream is not None:
        token, refusal = await _request_token(stream, request)
    if token is None and request.profile is not None:
        # The agent would otherwise run with another profile, which may allow more.
        raise DaemonError(f"the profile {request.profile!r} cannot be used: {refusal}")
    return token


async def _request_token(stream: ByteStream, request: ApproverRequest) -> tuple[str | None, str]:
    token, refusal = None, f"the daemon does not answer within {_TOKEN_TIMEOUT_S:g} s"
    endpoint = Endpoint(Connected(stream), "the daemon")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(endpoint.run)
        with trio.move_on_after(_TOKEN_TIMEOUT_S):
            try:
                answer = await endpoint.request("_acpterm/approver", request)
                token = msgspec.json.decode(answer, type=ApproverResponse).token
            except (RpcError, msgspec.DecodeError) as error:
                refusal = str(error)
        nursery.cancel_scope.cancel()
    return token, refusal


_PREFIX_CHARS_MAX: Final = 80
CHOICES: Final[dict[str, tuple[Decision, Scope]]] = {
    "allow_once": ("allow", "once"),
    "allow_always": ("allow", "always"),
    "reject_once": ("deny", "once"),
    "reject_always": ("deny", "always"),
}
"""Maps the id of each option to the decision on the command, and the scope of that decision."""


def question_options(info: ApprovalInfo) -> list[PermissionOption]:
    """Return the options that the user can choose from in answer to the question `info`."""
    shown = "this command"
    options = [PermissionOption("allow_once", "Allow once", "allow_once")]
    if info.prefix is not None:
        prefix = command_line(info.prefix[0], info.prefix[1:])
        shown = f'"{one_line(prefix, _PREFIX_CHARS_MAX)}"'
        name = f"Always allow {shown} in this session"
        options.append(PermissionOption("allow_always", name, "allow_always"))
    name = f"Always reject {shown} in this session"
    options.append(PermissionOption("reject_once", "Reject", "reject_once"))
    options.append(PermissionOption("reject_always", name, "reject_always"))
    return options
