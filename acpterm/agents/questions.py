"""The questions that the host asks the user through `acpterm proxy` or `acpterm prompt`.

The host sends questions only to an approver, which a client of the daemon becomes by a token. It
requests the token on the user's socket before it starts the agent, and sends it in `initialize`:
the token is neither in the command line nor in the environment, and is not logged. If the daemon
gives none (it refuses every process in an agent's terminal), the client gets no questions, and the
user can still answer with `acpterm approve`.

The host's notifications only change `PendingQuestions.pending`, with which `QuestionTasks` compares
what it has asked. So the host's limit of pending questions limits the memory, however fast they
come and go.
"""

from collections.abc import Awaitable, Callable
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
from acpterm.config import Settings
from acpterm.jsonrpc import NotificationReceived, RpcError
from acpterm.link.daemon import DaemonError
from acpterm.link.daemon_stream import Connected, connect_running
from acpterm.link.endpoint import Endpoint
from acpterm.link.session import ignore
from acpterm.runtime.command_line import command_line
from acpterm.runtime.sanitize import shortened

_TOKEN_TIMEOUT_S: Final = 10.0


class CannotAskError(Exception):
    """The user cannot be asked here; the message says why."""


class PendingQuestions:
    """The host's questions without an answer; `request` are the params that request the token."""

    def __init__(self, request: ApproverRequest) -> None:
        self.request: Final = request
        self.pending: Final[dict[str, ApprovalInfo]] = {}
        """By id, the oldest first."""
        self._changed: Final = trio.lowlevel.ParkingLot()

    def on_notification(self, notification: NotificationReceived) -> None:
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


class QuestionTasks:
    """Asks the user the host's questions, each in a task, and sends the host the answers.

    `ask` returns the id of an option of `question_options`, or raises `CannotAskError`: then the
    user can still answer elsewhere. It is cancelled when the question is answered elsewhere, and
    `on_withdrawn` is called then.
    """

    def __init__(
        self,
        questions: PendingQuestions,
        host: Endpoint,
        ask: Callable[[ApprovalInfo], Awaitable[str]],
        on_withdrawn: Callable[[ApprovalInfo], None] = lambda _: None,
    ) -> None:
        self._questions = questions
        self._host = host
        self._ask = ask
        self._on_withdrawn = on_withdrawn

    async def run(self) -> None:
        asked: dict[str, trio.CancelScope] = {}
        async with trio.open_nursery() as nursery:
            while True:
                pending = self._questions.pending
                for identifier in asked.keys() - pending.keys():
                    asked.pop(identifier).cancel()
                new = next((one for one in pending if one not in asked), None)
                if new is not None:
                    asked[new] = trio.CancelScope()
                    nursery.start_soon(self._answer, pending[new], asked[new])
                    # One task at a time: trio starts several in any order, and the oldest
                    # question is asked first.
                    await trio.lowlevel.checkpoint()
                    continue
                # At once after the comparison: a change during another wait would be missed.
                await self._questions.wait_changed()

    async def _answer(self, info: ApprovalInfo, scope: trio.CancelScope) -> None:
        with scope:
            identifier = info.approval_id
            try:
                decision, how_long = CHOICES[await self._ask(info)]
                answer = AnswerRequest(identifier, decision, how_long)
                self._host.call(ANSWER, answer, ignore)
            except CannotAskError as error:
                self._host.call(DECLINE, DeclineRequest(identifier, str(error)), ignore)
        if scope.cancelled_caught:
            self._on_withdrawn(info)


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
    shown = "this command"
    back = " (acpterm undo can bring back all of it)" if info.can_undo else ""
    options = [PermissionOption("allow_once", f"Allow once{back}", "allow_once")]
    if info.prefix is not None:
        prefix = command_line(info.prefix[0], info.prefix[1:])
        shown = f'"{shortened(prefix, _PREFIX_CHARS_MAX)}"'
        name = f"Always allow {shown} in this session"
        options.append(PermissionOption("allow_always", name, "allow_always"))
    name = f"Always reject {shown} in this session"
    options.append(PermissionOption("reject_once", "Reject", "reject_once"))
    options.append(PermissionOption("reject_always", name, "reject_always"))
    return options
