"""The handlers of the user's methods about approvals: list, answer and follow the questions."""

from collections import deque
from typing import Final

import trio

from acpterm.acp.approvals import (
    ASKED,
    WITHDRAWN,
    AnswerRequest,
    ApprovalInfo,
    ApprovalsResponse,
    ApproverRequest,
    ApproverResponse,
    AskedNotification,
    SubscribeApprovalsRequest,
    WithdrawnNotification,
)
from acpterm.acp.terminal import Empty
from acpterm.acp.user_api import NoParams
from acpterm.host.approvals import answer_info, approval_info, to_rpc_error
from acpterm.host.user.connection import UserConnection
from acpterm.policy.approvals import ApprovalError
from acpterm.policy.questions import Answer, Question


def list_pending(user: UserConnection, params: NoParams) -> ApprovalsResponse:
    """`_acpterm/approval/list`: return the pending questions of all agents, the oldest first."""
    del params
    return ApprovalsResponse([approval_info(one) for one in user.approvals.pending])


def answer(user: UserConnection, params: AnswerRequest) -> ApprovalInfo:
    """`_acpterm/approval/answer`: answer a question; return the question.

    Only the first answer to a question counts: a later one is an error.
    """
    approvals = user.approvals
    given = Answer(
        decision=params.decision, by=user.answers_as, scope=params.scope, reason=params.reason or ""
    )
    try:
        question = approvals.find(params.approval_id)
        info = approval_info(question)
        approvals.answer(question.id, given)
    except ApprovalError as error:
        raise to_rpc_error(error) from error
    return info


def approver(user: UserConnection, params: ApproverRequest) -> ApproverResponse:
    """`_acpterm/approver`: return a token that makes an agent's connection an approver.

    The token is valid only for the process that requests it.
    """
    if params.profile is not None:
        user.policy.profiles.check_known(params.profile)
    return ApproverResponse(user.guard.approver_tokens.issue(params, user.process))


async def subscribe(user: UserConnection, params: SubscribeApprovalsRequest) -> Empty:
    """`_acpterm/approval/subscribe`: send the pending questions, then every change.

    A new question is sent as an `asked` notification. When it is answered or withdrawn, a
    `withdrawn` notification follows: the client need no longer show the question. The request lasts
    until it is cancelled.
    """
    follower = _Follower()
    with user.ongoing_request(params.token), user.approvals.subscribe(follower):
        while True:
            await user.sender.drain()
            question, given = await follower.next()
            if given is None:
                asked = AskedNotification(approval_info(question), params.token)
                user.sender.notify(ASKED, asked)
            else:
                withdrawn = WithdrawnNotification(question.id, answer_info(given), params.token)
                user.sender.notify(WITHDRAWN, withdrawn)


class _Follower:
    """Queues the questions of all agents for one client. Implements `policy.approvals.Observer`."""

    def __init__(self) -> None:
        self._queue: deque[tuple[Question, Answer | None]] = deque()
        self._has_items: Final = trio.lowlevel.ParkingLot()

    def attends(self, question: Question) -> bool:
        del question
        return True

    def asked(self, question: Question) -> None:
        self._put((question, None))

    def closed(self, question: Question, answer: Answer) -> None:
        """Queue the answer to a question, or drop the question if it was not sent yet."""
        if (question, None) in self._queue:
            self._queue.remove((question, None))
        else:
            self._put((question, answer))

    def _put(self, item: tuple[Question, Answer | None]) -> None:
        self._queue.append(item)
        self._has_items.unpark_all()

    async def next(self) -> tuple[Question, Answer | None]:
        while not self._queue:
            await self._has_items.park()
        return self._queue.popleft()
