"""Asks the user whether an agent's command may run, and handles the answers of approvers.

`ask_user` is called by the gate of `terminal/create` and `_acpterm/command/check`. When the client
has reconnected, after a take-over or a lost transport, it repeats the request. `ask_user` then
continues the earlier question, or returns the answer that the user has given meanwhile.

An agent cannot answer its own questions: `answer` and `decline` are refused unless the connection's
client is an approver (see `host.approvals`). An approver passes the agent's requests on to the
host, but not these two. With the setting `mcp_elicitation_approves`, an agent's MCP client may
answer too. An answer of an MCP client is never remembered for later commands.
"""

import time
from typing import Final, NamedTuple

import trio

from acpterm.acp.approvals import AnswerRequest, DeclineRequest
from acpterm.acp.terminal import Empty
from acpterm.host.agent.approver import Approver
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.approvals import new_id, to_rpc_error
from acpterm.host.sessions.session import Session
from acpterm.host.state.records import RequestId
from acpterm.jsonrpc import INVALID_REQUEST, RpcError
from acpterm.policy.approvals import ApprovalError, NoQuestionError, Unattended
from acpterm.policy.questions import Answer, Prefix, Question

COMMAND_CHARS_MAX: Final = 16 * 1024


class Ask(NamedTuple):
    """What the user is asked about a command, and for how long."""

    command: str
    """The whole command, of at most `COMMAND_CHARS_MAX` characters: the user sees all of it."""
    directory: str
    level: str
    reason: str
    prefix: Prefix | None
    """The words by which an answer "always" recognises later commands of the session: a command
    with the same prefix gets the same answer without a question ("allow" only in the same
    directory). They are words of the only part that the user is asked about. None if there are no
    such words: then the answer "always allow" is not possible, and "always refuse" applies only to
    exactly this command."""
    fingerprint: bytes
    """A hash of the request, and of everything else that decides what the command does."""
    timeout_s: float | None = None
    """After how many seconds without an answer the command is refused; None for never."""
    unattended: Unattended = "refuse"
    """Whether the command is refused at once if no client can ask the user, or waits for one."""


async def ask_user(
    connection: AgentConnection, session: Session, request: RequestId | None, ask: Ask
) -> Answer:
    """Ask the user whether a command may run, and wait for the answer.

    `request` is the JSON-RPC id of the agent's request (`creates.recognisable_id`). If an earlier
    answer for the whole session applies to the command, return that answer at once. Raises
    `RpcError` (-32602) if too many questions are pending. Cancelling the call withdraws the
    question, unless the client is expected to repeat the request.
    """
    host, agent = connection.host, connection.agent
    question = host.approvals.unclaimed(agent.connection_id, request, ask.fingerprint)
    if question is None:
        question = Question(
            id=new_id(),
            connection=agent.connection_id,
            request=request,
            session=session.id,
            agent=agent.name,
            command=ask.command,
            directory=ask.directory,
            level=ask.level,
            reason=ask.reason,
            # An empty prefix would stand for all commands.
            prefix=ask.prefix or None,
            fingerprint=ask.fingerprint,
            asked_time=time.time(),
        )
        if decided := session.decided(question):
            return decided
    try:
        answer = await host.approvals.ask(
            question,
            timeout=ask.timeout_s,
            unattended=ask.unattended if host.daemon_info.reaches_user else "refuse",
            is_repeated=lambda: connection.creates.is_repeatable(request),
        )
    except ApprovalError as error:
        raise to_rpc_error(error) from error
    except trio.Cancelled:
        if connection.creates.is_repeatable(request):
            # The wait that began with the resumption may have ended before this request did.
            host.start_task(expire_unclaimed, connection)
        raise
    session.remember(question, answer)
    return answer


def answer(connection: AgentConnection, params: AnswerRequest) -> Empty:
    """`_acpterm/approval/answer`: answer a question of this connection, as the user.

    Raises `RpcError`: -32600 if the client may not answer (`AgentConnection.answerer`), -32002 if
    the question is not pending, -32602 if the answer allows with the scope `always`, but the
    question's `prefix` is null.
    """
    approver = _approver(connection)
    given = Answer(
        decision=params.decision,
        by=approver.kind,
        scope="once" if approver.kind == "elicitation" else params.scope,
        reason=params.reason or "",
    )
    try:
        _check_own(connection, approver, params.approval_id)
        connection.host.approvals.answer(params.approval_id, given)
    except ApprovalError as error:
        raise to_rpc_error(error) from error
    return Empty()


def decline(connection: AgentConnection, params: DeclineRequest) -> Empty:
    """`_acpterm/approval/decline`: record that the client cannot ask the user the given question.

    Raises `RpcError`: -32600 if the client may not answer questions (`AgentConnection.answerer`),
    -32002 if the question is not pending.
    """
    approver = _approver(connection)
    try:
        _check_own(connection, approver, params.approval_id)
        connection.host.approvals.decline(params.approval_id, approver, params.reason)
    except ApprovalError as error:
        raise to_rpc_error(error) from error
    return Empty()


def _approver(connection: AgentConnection) -> Approver:
    if connection.answerer is None:
        raise RpcError(
            INVALID_REQUEST,
            "an agent cannot answer questions about its own commands: the user answers them, in "
            "the editor or with acpterm approve",
        )
    return connection.answerer


def _check_own(connection: AgentConnection, approver: Approver, identifier: str) -> None:
    """Raise `NoQuestionError` unless `identifier` is the id of a pending question of `connection`.

    `approver` is `connection.answerer`.
    """
    pending = connection.host.approvals.pending
    if not any(question.id == identifier and approver.attends(question) for question in pending):
        raise NoQuestionError(
            f"question {identifier!r} of this connection is not pending: it was answered or "
            "withdrawn, or there is none with this id"
        )


async def expire_unclaimed(connection: AgentConnection) -> None:
    """Wait `resume_timeout` seconds; then withdraw the connection's unclaimed questions.

    A question is unclaimed while no request waits for its answer: the transport of the request was
    lost, and the client has not repeated the request yet. Call this function when the connection is
    resumed. If a request on the lost transport ends only afterwards, call this function again,
    because the question of that request becomes unclaimed only then.
    """
    connection.expiry.cancel()
    with trio.CancelScope() as connection.expiry:
        await trio.sleep(connection.settings.resume_timeout)
        connection.host.approvals.expire_unclaimed(connection.id)


async def send_pending(connection: AgentConnection) -> None:
    """Send the pending questions to a client that has just reconnected, if it may answer them.

    First let other tasks run, so that the client gets the response to `initialize` before the
    questions.
    """
    await trio.lowlevel.checkpoint()
    if connection.answerer is not None:
        connection.answerer.send_pending(connection.host.approvals.pending)
