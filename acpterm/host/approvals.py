"""The questions to the user on the wire and in the store, and the approvers of agents.

A question is whether a command of an agent may run; `policy.approvals` has the pending ones.

An *approver* is an agent's connection whose client asks the user: `acpterm proxy` or `acpterm
prompt`. Such a client proves by a token that the user started it. First the client requests the
token on the user's socket, which admits no agent. Then it opens the agent's connection, and sends
the token in `initialize`. A token is valid once, for `TOKEN_LIFETIME_S` seconds, and only for the
process that has requested it.

The record of a question is stored when the question is asked, and stored again when the user has
answered. A withdrawn question's record is removed at once. Otherwise the record is removed when the
request that caused the question has ended. So an answer counts even if the worker dies before the
command starts.
"""

import hmac
import secrets
from typing import Final, NamedTuple, TypeAlias

import trio
from msgspec.structs import asdict

from acpterm.acp.approvals import (
    ASKED,
    PENDING,
    WITHDRAWN,
    AnswererKind,
    ApprovalAnswer,
    ApprovalInfo,
    ApproverRequest,
    AskedNotification,
    PendingNotification,
    WithdrawnNotification,
)
from acpterm.host.server.dispatch import Sender
from acpterm.host.state.records import ApprovalRecord, RequestId, pack_text, unpack_text
from acpterm.host.state.store import approval_key
from acpterm.host.state.writer import StateWriter
from acpterm.jsonrpc import INVALID_PARAMS, RESOURCE_NOT_FOUND, RpcError, readable
from acpterm.policy.approvals import ApprovalError, NoQuestionError
from acpterm.policy.questions import Answer, Question
from acpterm.pty.processes import now as boot_time

TOKEN_LIFETIME_S: Final = 60.0
TOKENS_MAX: Final = 100
_TOKEN_BYTES: Final = 32
_ID_BYTES: Final = 8

Process: TypeAlias = tuple[int, float]
"""The pid and the start time of a process."""


def new_id() -> str:
    return secrets.token_hex(_ID_BYTES)


def approval_info(question: Question) -> ApprovalInfo:
    deadline = question.deadline
    remaining = None if deadline is None else max(0.0, deadline - trio.current_time())
    return ApprovalInfo(
        approval_id=question.id,
        connection=question.connection,
        agent=question.agent,
        session_id=question.session,
        command=question.command,
        cwd=readable(question.directory),
        level=question.level,
        reason=question.reason,
        prefix=None if question.prefix is None else list(question.prefix),
        asked_at=round(1000 * question.asked_time),
        remaining_ms=None if remaining is None else round(1000 * remaining),
        can_undo=question.can_undo,
    )


def answer_info(answer: Answer) -> ApprovalAnswer:
    return ApprovalAnswer(answer.decision, answer.scope, answer.by, answer.reason)


def to_rpc_error(error: ApprovalError) -> RpcError:
    is_unknown = isinstance(error, NoQuestionError)
    return RpcError(RESOURCE_NOT_FOUND if is_unknown else INVALID_PARAMS, str(error))


class ApprovalRecords:
    """The observer that stores the questions and their answers.

    It has to be the first observer: a question is stored before any client is sent it, so that the
    next worker knows each question that a client has shown, and each answer.
    """

    def __init__(self, writer: StateWriter) -> None:
        self._writer: Final = writer
        self._ids: Final[dict[tuple[str, RequestId], str]] = {}

    def attends(self, question: Question) -> bool:
        del question
        return False

    def restored(self, question: Question) -> None:
        if question.request is not None:
            self._ids[question.connection, question.request] = question.id

    def asked(self, question: Question) -> None:
        self._store(question, None)

    def closed(self, question: Question, answer: Answer) -> None:
        if answer.by != "cancelled":
            self._store(question, answer)
        elif question.request is not None:
            key = question.connection, question.request
            if self._ids.get(key) == question.id:
                self.forget(*key)

    def _store(self, question: Question, answer: Answer | None) -> None:
        if question.request is None:
            # A repetition of the request is not recognised: the next worker could not use this.
            return
        key = question.connection, question.request
        if self._ids.get(key, question.id) != question.id:
            # A new request has the id of an earlier one, whose record would never be removed.
            self.forget(*key)
        self._ids[key] = question.id
        record = _record(question, answer)
        self._writer.changed(approval_key(question.id), record.encode)
        self._writer.flush()

    def forget(self, connection: str, request: RequestId) -> None:
        """Remove the record of a request's question, if any, because the request has ended."""
        identifier = self._ids.pop((connection, request), None)
        if identifier is not None:
            self._writer.removed(approval_key(identifier))

    def forget_connection(self, connection: str) -> None:
        for key in [key for key in self._ids if key[0] == connection]:
            self.forget(*key)


def _record(question: Question, answer: Answer | None) -> ApprovalRecord:
    fields = asdict(question)
    del fields["id"]
    if (deadline := fields.pop("deadline")) is not None:
        fields["deadline_at"] = deadline - trio.current_time() + boot_time()
    fields["directory"] = pack_text(question.directory)
    return ApprovalRecord(**fields, answer=answer)


def restored(identifier: str, record: ApprovalRecord) -> tuple[Question, Answer | None]:
    """Return a stored question, and its answer, if there was one yet."""
    fields = asdict(record)
    answer = fields.pop("answer")
    if (deadline := fields.pop("deadline_at")) is not None:
        fields["deadline"] = deadline - boot_time() + trio.current_time()
    fields["directory"] = unpack_text(record.directory)
    fields["prefix"] = None if record.prefix is None else tuple(record.prefix)
    return Question(id=identifier, **fields), answer


class Approver:
    """The observer that sends the questions of one agent's connection to the connection's client.

    While the client is disconnected, nothing is sent. Notifications do not pile up in memory: they
    are caused by the agent's requests, which are not read while the send queue is full.
    """

    def __init__(self, kind: AnswererKind, connection: str, sender: Sender) -> None:
        self.kind: Final = kind
        self._connection: Final = connection
        self._sender: Final = sender

    def attends(self, question: Question) -> bool:
        return question.connection == self._connection

    def asked(self, question: Question) -> None:
        if self.attends(question):
            self._sender.notify(ASKED, AskedNotification(approval_info(question)))

    def closed(self, question: Question, answer: Answer) -> None:
        if self.attends(question):
            self._sender.notify(WITHDRAWN, WithdrawnNotification(question.id, answer_info(answer)))

    def send_pending(self, pending: list[Question]) -> None:
        """Send those of `pending` that are questions of this connection, after a reconnect."""
        own = [approval_info(question) for question in pending if self.attends(question)]
        self._sender.notify(PENDING, PendingNotification(own))


class _Token(NamedTuple):
    request: ApproverRequest
    process: Process | None
    expires: float


class ApproverTokens:
    """The tokens that were issued to approvers and were not used yet."""

    def __init__(self) -> None:
        # In the order in which they were issued.
        self._tokens: Final[dict[str, _Token]] = {}

    def issue(self, request: ApproverRequest, process: Process | None) -> str:
        """Return a new token, which only `process` may use; if None (not known), any process."""
        token = secrets.token_hex(_TOKEN_BYTES)
        self._tokens[token] = _Token(request, process, trio.current_time() + TOKEN_LIFETIME_S)
        while len(self._tokens) > TOKENS_MAX:
            del self._tokens[next(iter(self._tokens))]
        return token

    def redeem(self, presented: str, holder: Process | None) -> ApproverRequest | None:
        """Use up a token; return the request that it was issued for, or None if it is not valid."""
        found = None
        # Compare with all tokens, so that the duration reveals nothing.
        for token in self._tokens:
            if hmac.compare_digest(token.encode(), presented.encode(errors="replace")):
                found = token
        if found is None:
            return None
        token_of = self._tokens.pop(found)
        if trio.current_time() > token_of.expires:
            return None
        if token_of.process is not None and token_of.process != holder:
            return None
        return token_of.request
