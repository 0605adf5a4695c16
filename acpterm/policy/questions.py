"""Questions to the user and their answers, and who observes them.

A program of the user that can answer a question is an observer: an editor behind `acpterm proxy`,
`acpterm prompt`, or `acpterm approvals --follow`.
"""

from typing import Literal, Protocol, TypeAlias

from msgspec import Struct

AnswerDecision: TypeAlias = Literal["allow", "deny"]
Scope: TypeAlias = Literal["once", "always"]
Unattended: TypeAlias = Literal["refuse", "wait"]
AnsweredBy: TypeAlias = Literal[
    "editor", "prompt", "approvals", "session", "timeout", "cancelled", "unattended"
]
Prefix: TypeAlias = tuple[str, ...]


class ApprovalError(Exception):
    """A question cannot be asked or answered; the message says why, and what to do."""


class NoQuestionError(ApprovalError):
    """No pending question has the given id."""


class Question(Struct, frozen=True, kw_only=True):
    """A question to the user: whether an agent may run a command."""

    id: str
    connection: str
    """The id of the agent's connection."""
    request: int | str | None
    """The JSON-RPC id of the agent's request; None if it could not be recognised when repeated."""
    session: str
    agent: str | None
    command: str
    directory: str
    level: str
    """The level of the command, such as `dangerous`."""
    reason: str
    """Why the user is asked."""
    prefix: Prefix | None
    """The words that "always" is for; None if the command cannot be allowed always."""
    fingerprint: bytes
    """Identifies the whole request, with its environment and everything that is not shown."""
    asked_time: float
    """When the question was asked, in seconds since 1970."""
    deadline: float | None = None
    """When the question is refused without an answer, on trio's clock; None for never."""


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to a question. `by` says who or what has answered."""

    decision: AnswerDecision
    by: AnsweredBy
    scope: Scope = "once"
    reason: str = ""
    """Why the command was refused, as far as it is known; may be empty."""

    @property
    def is_allowed(self) -> bool:
        """Whether the command may run."""
        return self.decision == "allow"


class Observer(Protocol):
    """Gets the questions, to show them to the user or to store them. The methods never raise."""

    def attends(self, question: Question) -> bool:
        """Return whether the user can answer the question through this observer."""

    def asked(self, question: Question) -> None:
        """Handle a new question."""

    def closed(self, question: Question, answer: Answer) -> None:
        """Handle the answer to a question, which is also called for withdrawn questions."""
