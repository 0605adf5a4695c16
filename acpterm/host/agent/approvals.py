"""What an agent's connection does about its own questions: its client answers or declines them.

An agent cannot answer its own questions: `answer` and `decline` are refused unless the connection's
client is an approver (see `host.approvals`). An approver passes the agent's requests on to the
host, but not these two. With the setting `mcp_elicitation_approves`, an agent's MCP client may
answer too. An answer of an MCP client is never remembered for later commands.
"""

import trio

from acpterm.acp.approvals import AnswerRequest, DeclineRequest
from acpterm.acp.terminal import Empty
from acpterm.host.agent.connection import AgentConnection
from acpterm.host.approvals import Approver, to_rpc_error
from acpterm.jsonrpc import INVALID_REQUEST, RpcError
from acpterm.policy.approvals import ApprovalError, NoQuestionError
from acpterm.policy.questions import Answer


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
        connection.approvals.answer(params.approval_id, given)
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
        connection.approvals.decline(params.approval_id, approver, params.reason)
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
    pending = connection.approvals.pending
    if not any(question.id == identifier and approver.attends(question) for question in pending):
        raise NoQuestionError(
            f"question {identifier!r} of this connection is not pending: it was answered or "
            "withdrawn, or there is none with this id"
        )


async def expire_unclaimed(connection: AgentConnection) -> None:
    """Wait `resume_timeout` seconds; then withdraw the questions that no request has claimed.

    Called when the connection is resumed, and again if a request on the lost transport ends only
    afterwards, because the question of that request becomes unclaimed only then.
    """
    connection.expiry.cancel()
    with trio.CancelScope() as connection.expiry:
        await trio.sleep(connection.settings.resume_timeout)
        connection.approvals.expire_unclaimed(connection.id)


async def send_pending(connection: AgentConnection) -> None:
    """Send the pending questions to a client that has just reconnected, if it may answer them."""
    # First let other tasks run: the client gets the response to `initialize` before the questions.
    await trio.lowlevel.checkpoint()
    if connection.answerer is not None:
        connection.answerer.send_pending(connection.approvals.pending)
