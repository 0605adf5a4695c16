"""The types of a question to the user (may a command run?) and of its answer.

Data only: `approvals` has the pending questions.
"""

from typing import Literal, TypeAlias

from msgspec import Struct

AnswerDecision: TypeAlias = Literal["allow", "deny"]
Scope: TypeAlias = Literal["once", "always"]
AnsweredBy: TypeAlias = Literal[
    "editor",
    "prompt",
    "elicitation",
    "approvals",
    "page",
    "session",
    "timeout",
    "cancelled",
    "unattended",
]
Prefix: TypeAlias = tuple[str, ...]


class Question(Struct, frozen=True, kw_only=True):
    """A question to the user: whether an agent may run `command` in `directory`."""

    id: str
    connection: str
    """The id of the agent's connection."""
    request: int | str | None
    """The JSON-RPC id of the agent's request; None if the request could not be recognised by its id
    when it is repeated."""
    session: str
    agent: str | None
    command: str
    directory: str
    level: str
    """The level of the command, such as `dangerous`."""
    reason: str
    """Why the user is asked."""
    prefix: Prefix | None
    """The words that "always" applies to; None if the command cannot be allowed always."""
    fingerprint: bytes
    """A digest of the whole request, including its environment and all else that is not shown."""
    asked_time: float
    """When the question was asked, in seconds since 1970."""
    can_undo: bool = False
    """Whether `acpterm undo` can bring back all that the command may lose."""
    deadline: float | None = None
    """The time, on trio's clock, at which an unanswered question is refused; None for never."""


class Answer(Struct, frozen=True, kw_only=True):
    """The answer to a question.

    `by` is the client through which the user answered (`editor`, `prompt`, `elicitation`,
    `approvals`, `page`), or what answered instead: an earlier answer in the `session`, a `timeout`,
    the withdrawal of the question (`cancelled`), or the lack of an observer (`unattended`). `scope`
    says whether the answer counts once, or for the rest of the session.
    """

    decision: AnswerDecision
    by: AnsweredBy
    scope: Scope = "once"
    reason: str = ""
    """Why the command was refused; empty if that is not known."""

    @property
    def is_allowed(self) -> bool:
        """Whether the command may run."""
        return self.decision == "allow"
