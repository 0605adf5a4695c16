"""Sends the questions of one agent's connection to the connection's client, which asks the user."""

from typing import Final

from acpterm.acp.approvals import (
    ASKED,
    PENDING,
    WITHDRAWN,
    AnswererKind,
    AskedNotification,
    PendingNotification,
    WithdrawnNotification,
)
from acpterm.host.approvals import answer_info, approval_info
from acpterm.host.server.dispatch import Sender
from acpterm.policy.questions import Answer, Question


class Approver:
    """Sends the questions of one agent's connection to the client of that connection.

    `kind` is the kind of client, such as `editor`, which is recorded with the client's answers.
    `connection` is the connection's id, and `sender` sends to the client. Implements
    `policy.approvals.Observer`. While the client is disconnected, nothing is sent; `send_pending`
    sends the pending questions after a reconnect. Notifications do not pile up in memory: they are
    caused by the agent's requests, which are not read while the send queue is full.
    """

    def __init__(self, kind: AnswererKind, connection: str, sender: Sender) -> None:
        self.kind: Final = kind
        self._connection: Final = connection
        self._sender: Final = sender

    def attends(self, question: Question) -> bool:
        """Return whether the client can ask the user this question.

        It can ask all questions of its own connection, and no others.
        """
        return question.connection == self._connection

    def asked(self, question: Question) -> None:
        """Send a new question to the client, if it is a question of this connection."""
        if self.attends(question):
            self._sender.notify(ASKED, AskedNotification(approval_info(question)))

    def closed(self, question: Question, answer: Answer) -> None:
        """Send the answer to a question to the client, if it is a question of this connection."""
        if self.attends(question):
            self._sender.notify(WITHDRAWN, WithdrawnNotification(question.id, answer_info(answer)))

    def send_pending(self, pending: list[Question]) -> None:
        """Send those of `pending` that are questions of this connection, after a reconnect."""
        own = [approval_info(question) for question in pending if self.attends(question)]
        self._sender.notify(PENDING, PendingNotification(own))
