"""The pending questions of all agents, and the observers through which the user answers them.

A question (`questions`) is whether a command may run. An observer is a program that shows questions
to the user: an editor behind `acpterm proxy`, `acpterm prompt`, `acpterm approvals --follow`. The
first answer counts, whichever observer it comes from; then the other observers are notified that
the question is closed. States of a question, which begins as *asked*:

    unclaimed ───────ask────────▶ asked ──answer, withdraw, deadline, unattended──▶ answered
        │     ◀──transport lost──                                                       ▲
        └─────────────────────answer, withdraw──────────────────────────────────────────┘

- *asked*: a task waits in `ask` for the answer. If the task is cancelled, the question is answered
  with a refusal, unless the transport was lost and the client will repeat the request: then the
  question becomes unclaimed.
- *unclaimed*: the question was asked by an earlier worker, or on a transport that was lost. The
  agent's client repeats its request; then `ask` continues the question with its id and deadline.
  If the answer arrives before the repeated request, the question is *answered*, and the answer is
  kept until the request arrives.
- *answered*: `ask` returns the answer. Withdrawing a question answers it with a refusal.

A question is *attended* if at least one observer can answer it and has not declined it. A question
that is not attended is refused, unless the profile says to wait, and no observer has declined it.
An unclaimed question of an earlier worker counts as attended for some time, since observers have to
reconnect first.
"""

import math
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Literal, Protocol, TypeAlias

import trio
from msgspec.structs import replace

from acpterm.policy.questions import Answer, Question
from acpterm.policy.session_decisions import SessionDecisions

CONNECTION_PENDING_MAX: Final = 64
PENDING_MAX: Final = 512
LAST: Final = "@last"
"""The name of the question that was asked last."""
_SHORT_ID_MIN: Final = 2

Unattended: TypeAlias = Literal["refuse", "wait"]


class ApprovalError(Exception):
    """A question cannot be asked, found or answered; the message says why, and what to do."""


class NoQuestionError(ApprovalError):
    """No pending question has the given id."""


class Observer(Protocol):
    """Receives the questions, to show them to the user or to store them. No method raises."""

    def attends(self, question: Question) -> bool:
        """Return whether the user can answer the question through this observer."""

    def asked(self, question: Question) -> None:
        """Handle a new question, or a pending one of which this observer was not notified yet."""

    def closed(self, question: Question, answer: Answer) -> None:
        """Handle the end of a question: `answer` is a refusal if the question was withdrawn."""


class _Entry:
    """A question without an answer, or with an answer that `ask` has not returned yet."""

    def __init__(self, question: Question, attended_until: float = -math.inf) -> None:
        self.question: Final = question
        self.answer: Answer | None = None
        self.is_claimed = False
        self.attended_until: Final = attended_until
        """Until this time, on trio's clock, the question counts as attended."""
        self.declined: Final[dict[Observer, str]] = {}
        """The observers that have declined the question, and their reasons."""
        self.changed: Final = trio.lowlevel.ParkingLot()


class Approvals:
    """The questions of all agents of a host, and the observers; the module describes the states."""

    def __init__(self) -> None:
        self._entries: Final[dict[str, _Entry]] = {}
        # In the order in which they were added.
        self._observers: Final[dict[Observer, None]] = {}

    @property
    def pending(self) -> list[Question]:
        """The questions that have no answer yet, the oldest first."""
        return [entry.question for entry in self._entries.values() if entry.answer is None]

    async def ask(
        self,
        question: Question,
        *,
        timeout: float | None = None,  # noqa: ASYNC109  it becomes the question's deadline
        unattended: Unattended = "refuse",
        is_repeated: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Ask the user, and return the answer: a refusal after `timeout` s, or if not attended."""
        # If the caller is cancelled, the question is withdrawn, unless `is_repeated()`: then the
        # agent's client will repeat the request, and the question becomes unclaimed.
        entry = self._entries.get(question.id)
        if entry is None:
            self._check_count(question.connection)
            if unattended == "refuse" and not self.is_attended(question):
                await trio.lowlevel.checkpoint()
                return _unattended(())
            if timeout is not None:
                question = replace(question, deadline=trio.current_time() + timeout)
            entry = self._add(_Entry(question))
        entry.is_claimed = True
        try:
            # Not before `_add`: a client that withdraws the question meanwhile must find it.
            await trio.lowlevel.checkpoint()
            answer = await self._wait(entry, unattended)
        except trio.Cancelled:
            entry.is_claimed = False
            if not is_repeated():
                self._close(entry, _cancelled("the request was cancelled"))
                self._entries.pop(question.id, None)
            raise
        del self._entries[question.id]
        return answer

    async def _wait(self, entry: _Entry, unattended: Unattended) -> Answer:
        end = _or_never(entry.question.deadline)
        while True:
            if entry.answer is not None:
                return entry.answer
            now, until = trio.current_time(), end
            if now >= end:
                self._close(entry, Answer(decision="deny", by="timeout"))
                continue
            may_wait = unattended == "wait" and not entry.declined
            if not may_wait and not self.is_attended(entry.question, entry.declined):
                if now >= entry.attended_until:
                    self._close(entry, _unattended(entry.declined.values()))
                    continue
                until = min(end, entry.attended_until)
            with trio.move_on_at(until):
                await entry.changed.park()

    def find(self, name: str) -> Question:
        """Return the pending question whose id begins with `name`; `@last` is the newest."""
        pending = self.pending
        if name in ("", LAST) and not pending:
            raise NoQuestionError("no question waits for an answer")
        if name == LAST or (name == "" and len(pending) == 1):
            return pending[-1]
        if name == "":
            raise ApprovalError(
                f"{len(pending)} questions wait: say which ID, as acpterm approvals lists them, "
                f"or {LAST}"
            )
        found = [question for question in pending if question.id == name]
        if not found and len(name) >= _SHORT_ID_MIN:
            found = [question for question in pending if question.id.startswith(name)]
        if not found:
            raise NoQuestionError(
                f"no question {name!r} is pending: it may have been answered or withdrawn; "
                "acpterm approvals lists the pending questions"
            )
        if len(found) > 1:
            ids = ", ".join(question.id for question in found)
            raise ApprovalError(f"{name!r} is the beginning of several ids: type more of {ids}")
        return found[0]

    def answer(self, identifier: str, answer: Answer) -> Question:
        """Answer a question; if the scope is `always`, also others of the session."""
        entry = self._entries.get(identifier)
        if entry is not None and trio.current_time() >= _or_never(entry.question.deadline):
            self._close(entry, Answer(decision="deny", by="timeout"))
        if entry is None or entry.answer is not None:
            raise NoQuestionError(
                f"question {identifier!r} is not pending: it was answered or withdrawn, or there "
                "is none with this id"
            )
        question = entry.question
        if answer.scope == "always" and answer.is_allowed and question.prefix is None:
            raise ApprovalError(
                f"the command of question {identifier!r} cannot be allowed always, since it has no "
                "part that is safe to recognise: allow it once"
            )
        self._close(entry, answer)
        if answer.scope == "always":
            decisions = SessionDecisions()
            decisions.remember(question, answer)
            for other in list(self._entries.values()):
                asked = other.question
                is_same = (asked.connection, asked.session) == (
                    question.connection,
                    question.session,
                )
                if is_same and (found := decisions.find(asked)):
                    self._close(other, replace(found, by=answer.by))
        return question

    def decline(self, identifier: str, observer: Observer, reason: str) -> None:
        """Record that the user cannot answer through `observer`; the agent gets `reason`."""
        entry = self._entries.get(identifier)
        if entry is None or entry.answer is not None:
            raise NoQuestionError(f"question {identifier!r} is not pending")
        entry.declined[observer] = reason
        entry.changed.unpark_all()

    def withdraw(self, connection: str, session: str | None = None, *, reason: str) -> None:
        """Withdraw the questions of a connection, or only those of one of its sessions."""
        for identifier, entry in list(self._entries.items()):
            question = entry.question
            if question.connection == connection and session in (None, question.session):
                self._close(entry, _cancelled(reason))
                if not entry.is_claimed:
                    del self._entries[identifier]

    def restore(
        self, question: Question, answer: Answer | None = None, *, grace: float = 0.0
    ) -> None:
        """Add an earlier worker's question as unclaimed; for `grace` s it needs no observer."""
        entry = self._add(_Entry(question, trio.current_time() + grace), is_answered=bool(answer))
        entry.answer = answer

    def unclaimed(
        self, connection: str, request: int | str | None, fingerprint: bytes
    ) -> Question | None:
        """Return the unclaimed question that a repeated request belongs to."""
        # The same JSON-RPC id with another fingerprint is another command than the user has seen:
        # the answer must not count for it, so the question is withdrawn.
        for entry in list(self._entries.values()):
            question = entry.question
            if entry.is_claimed or request is None or question.request != request:
                continue
            if question.connection != connection:
                continue
            if question.fingerprint == fingerprint:
                return question
            self._close(entry, _cancelled("another request has the same id"))
            del self._entries[question.id]
        return None

    def expire_unclaimed(self, connection: str) -> None:
        """Withdraw the unclaimed questions of the connection with the id `connection`."""
        for identifier, entry in list(self._entries.items()):
            if not entry.is_claimed and entry.question.connection == connection:
                self._close(entry, _cancelled("the request was not repeated"))
                del self._entries[identifier]

    @contextmanager
    def subscribe(self, observer: Observer) -> Iterator[None]:
        """Pass all questions to `observer` during the block, beginning with the pending ones."""
        self.add(observer)
        try:
            yield
        finally:
            self.remove(observer)

    def add(self, observer: Observer) -> None:
        """Pass all questions to `observer` from now on, beginning with the pending ones."""
        self._observers[observer] = None
        for question in self.pending:
            observer.asked(question)
        self._recheck()

    def remove(self, observer: Observer) -> None:
        """Pass no more questions to `observer`. Idempotent."""
        self._observers.pop(observer, None)
        for entry in self._entries.values():
            entry.declined.pop(observer, None)
        self._recheck()

    def _recheck(self) -> None:
        """Wake each task that waits for an answer: it checks whether its question is attended."""
        for entry in self._entries.values():
            entry.changed.unpark_all()

    def _check_count(self, connection: str) -> None:
        pending = self.pending
        own = sum(question.connection == connection for question in pending)
        if own >= CONNECTION_PENDING_MAX:
            raise ApprovalError(
                f"{own} questions of this connection wait for the user: wait for some answers "
                "before you run more commands that must be approved"
            )
        if len(pending) >= PENDING_MAX:
            raise ApprovalError(
                f"{len(pending)} questions of all agents wait for the user: wait for some answers "
                "before you run more commands that must be approved"
            )

    def is_attended(self, question: Question, declined: Collection[Observer] = ()) -> bool:
        """Return whether the user can answer a question through an observer not in `declined`."""
        return any(
            observer not in declined and observer.attends(question) for observer in self._observers
        )

    def _add(self, entry: _Entry, *, is_answered: bool = False) -> _Entry:
        self._entries[entry.question.id] = entry
        if not is_answered:
            for observer in list(self._observers):
                observer.asked(entry.question)
        return entry

    def _close(self, entry: _Entry, answer: Answer) -> None:
        """Answer a question, notify the observers and wake `ask`; do nothing if it is answered."""
        if entry.answer is not None:
            return
        entry.answer = answer
        for observer in list(self._observers):
            observer.closed(entry.question, answer)
        entry.changed.unpark_all()


def _or_never(deadline: float | None) -> float:
    return math.inf if deadline is None else deadline


def _cancelled(reason: str) -> Answer:
    return Answer(decision="deny", by="cancelled", reason=reason)


def _unattended(reasons: Iterable[str]) -> Answer:
    return Answer(decision="deny", by="unattended", reason="; ".join(reasons))
