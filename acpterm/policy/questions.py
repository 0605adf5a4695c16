"""A question to the user, whether a command may run, and its answer."""

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
