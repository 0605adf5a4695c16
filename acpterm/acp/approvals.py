"""The messages about approvals: questions to the user whether an agent's command may run.

Two kinds of connections are sent questions and answer them. An *approver* is an agent's connection
whose client asks the user: `acpterm proxy` asks through the editor, `acpterm prompt` at the
terminal. An approver is sent only the questions of its own connection. A connection to the user's
socket is sent the questions of all agents.

A field `…_at` is in milliseconds since 1970, and a field `…_ms` is a duration in milliseconds.
"""

from typing import Annotated, Final, Literal, TypeAlias

from msgspec import UNSET, Meta, UnsetType, field

from acpterm.acp.base import Wire

ApproverKind: TypeAlias = Literal["editor", "prompt"]
"""What asks the user: an editor behind `acpterm proxy`, or `acpterm prompt`."""
AnswererKind: TypeAlias = ApproverKind | Literal["elicitation"]
"""What answers questions: an approver, or an agent's own MCP client, if the settings allow it."""
Decision: TypeAlias = Literal["allow", "deny"]
Scope: TypeAlias = Literal["once", "always"]

ApprovalId = Annotated[str, Meta(description="the id of a question, or the beginning of it")]
Token = Annotated[str, Meta(description="any string: the request's notifications carry it, too")]

ASKED: Final = "_acpterm/approval/asked"
WITHDRAWN: Final = "_acpterm/approval/withdrawn"
PENDING: Final = "_acpterm/approval/pending"
ANSWER: Final = "_acpterm/approval/answer"
DECLINE: Final = "_acpterm/approval/decline"
SESSION_OPEN: Final = "_acpterm/session/open"


class ApprovalInfo(Wire):
    """A question to the user: whether a command of an agent may run.

    `agent` (a name), `connection` and `session_id` (ids) say which agent asks. `cwd` is the
    directory in which the command would run; on another host, the name of the place precedes it,
    as in ``ssh:build1:/src``. `level` is the level of the command, such as `dangerous`, and
    `reason` says why the user is asked. `prefix` has the first words of the command: an answer with
    the scope `always` applies to commands with the same `prefix`. `prefix` is null if the command
    cannot be allowed always. Without an answer within `remaining_ms`, the command is refused.
    `remaining_ms` is null if there is no time limit. `can_undo` says whether ``acpterm undo`` can
    bring back all that the command may lose; false if that is not known.
    """

    approval_id: str
    connection: str
    agent: str | None
    session_id: str
    command: str
    cwd: str
    level: str
    reason: str
    prefix: list[str] | None
    asked_at: int
    remaining_ms: int | None
    can_undo: bool = False


class ApprovalAnswer(Wire):
    """The answer to a question: the decision, for which commands (`scope`), and the source (`by`).

    If the user has answered, `by` says where: ``editor``, ``prompt``, ``elicitation``,
    ``approvals`` (a command of the user) or ``page``. If the command was refused without an answer
    of the user, `by` is the cause: ``timeout``, ``cancelled`` or ``unattended`` (no client could
    ask the user). `reason` is a text for the agent.
    """

    decision: Decision
    scope: Scope
    by: str
    reason: str


class AskedNotification(Wire, omit_defaults=True):
    """``_acpterm/approval/asked``: a new question, or one that is pending when a client subscribes.

    On the user's socket, `token` is the token of the ``_acpterm/approval/subscribe`` request. A
    notification to an approver has no token.
    """

    approval: ApprovalInfo
    token: str | UnsetType = UNSET


class WithdrawnNotification(Wire, omit_defaults=True):
    """``_acpterm/approval/withdrawn``: a question was answered, or is no longer asked.

    `answer` is the answer to the question; if the question is no longer asked, it is a refusal. On
    the user's socket, `token` is the token of the ``_acpterm/approval/subscribe`` request. A
    notification to an approver has no token.
    """

    approval_id: str
    answer: ApprovalAnswer
    token: str | UnsetType = UNSET


class PendingNotification(Wire):
    """``_acpterm/approval/pending``: all pending questions of a connection that was resumed.

    Questions that are not in the list have been answered or withdrawn.
    """

    approvals: list[ApprovalInfo]


class AnswerRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/approval/answer``: answer a question.

    On the user's socket, `approval_id` may also be the beginning of an id, ``@last`` for the newest
    question, or empty for the only one.
    With the `scope` `always`, the answer also applies to other commands of the same session, both
    those that wait for an answer and later ones. `always` with `deny` applies to all commands with
    the question's `prefix`; if the `prefix` is null, to exactly the same command. `always` with
    `allow` applies to all commands with the question's `prefix` and `cwd`; if the `prefix` is null,
    the request fails. `reason` is a text for the agent, such as why the command is refused.
    """

    approval_id: ApprovalId
    decision: Decision
    scope: Scope = "once"
    reason: str | None = None


class DeclineRequest(Wire):
    """The params of ``_acpterm/approval/decline``: this approver cannot ask the user a question.

    The question can still be answered on the user's socket. `reason` says what went wrong.
    """

    approval_id: ApprovalId
    reason: str


class ApproverRequest(Wire, omit_defaults=True):
    """The params of ``_acpterm/approver``: request a token that makes a connection an approver.

    `kind` says what will ask the user: an editor (`acpterm proxy`), or `acpterm prompt`. `agent` is
    the command with which the client starts the agent; the settings can select a profile by the
    name of the program in this command. `profile` is the profile that the user has chosen for this
    agent, if any. The client sends the token in ``initialize``, as ``_meta.acpterm.approver``, on
    the agents' socket.
    """

    kind: ApproverKind
    agent: list[str] = field(default_factory=list)
    profile: str | None = None


class ApproverResponse(Wire):
    """The response to ``_acpterm/approver``: a token that is valid once, for a minute."""

    token: str


class ApprovalsResponse(Wire):
    """The response to ``_acpterm/approval/list``: the pending questions, the oldest first."""

    approvals: list[ApprovalInfo]


class SubscribeApprovalsRequest(Wire):
    """The params of ``_acpterm/approval/subscribe``: send all questions, first the pending ones.

    While this request is open, the user counts as present: an agent's command waits for an answer
    even if no approver can ask the user.
    """

    token: Token
