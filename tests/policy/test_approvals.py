"""Questions to the user: who answers them, and what happens if no answer comes."""

import pytest
import trio
import trio.testing
from msgspec.structs import replace

from acpterm.policy.approvals import (
    CONNECTION_PENDING_MAX,
    PENDING_MAX,
    ApprovalError,
    Approvals,
    NoQuestionError,
)
from acpterm.policy.questions import Answer, Question
from acpterm.policy.session_decisions import SessionDecisions
from tests.support.depth import DEADLINE_S

ALLOW = Answer(decision="allow", by="approvals")
DENY = Answer(decision="deny", by="editor", reason="no")
ALWAYS = Answer(decision="allow", by="editor", scope="always")


def question(identifier="q1", **more):
    return Question(
        **{
            "id": identifier,
            "connection": "c1",
            "request": 1,
            "session": "s1",
            "agent": "tester",
            "command": "git push",
            "directory": "/p",
            "level": "dangerous",
            "reason": "it pushes",
            "prefix": ("git", "push"),
            "fingerprint": b"f",
            "asked_time": 0.0,
            **more,
        }
    )


class Observer:
    """Records what it gets; the user can answer here unless `is_blind`."""

    def __init__(self, *, is_blind=False, connection=None):
        self.is_blind = is_blind
        self.connection = connection
        self.asked_ids = []
        self.closed_ids = []

    def attends(self, question):
        return not self.is_blind and self.connection in (None, question.connection)

    def asked(self, question):
        self.asked_ids.append(question.id)

    def closed(self, question, answer):
        self.closed_ids.append((question.id, answer.decision, answer.by))


class Asking:
    """Asks questions in tasks, and collects the answers."""

    def __init__(self, nursery):
        self.approvals = Approvals()
        self.answers = {}
        self.scopes = {}
        self._nursery = nursery

    async def start(self, asked, **how):
        scope = self.scopes[asked.id] = trio.CancelScope()

        async def ask():
            with scope:
                self.answers[asked.id] = await self.approvals.ask(asked, **how)

        self._nursery.start_soon(ask)
        await trio.testing.wait_all_tasks_blocked()


@pytest.fixture
async def asking(nursery):
    return Asking(nursery)


async def test_first_answer_counts_and_later_ones_are_refused(autojump_clock, asking):
    first, second = Observer(), Observer()
    with asking.approvals.subscribe(first), asking.approvals.subscribe(second):
        await asking.start(question())
        assert first.asked_ids == second.asked_ids == ["q1"]
        asking.approvals.answer("q1", ALLOW)
        with pytest.raises(NoQuestionError, match="'q1' is not pending"):
            asking.approvals.answer("q1", DENY)
        await trio.testing.wait_all_tasks_blocked()
    assert asking.answers == {"q1": ALLOW}
    assert first.closed_ids == second.closed_ids == [("q1", "allow", "approvals")]
    assert asking.approvals.pending == []


async def test_observer_that_comes_later_gets_the_pending_questions(autojump_clock, asking):
    await asking.start(question(), unattended="wait")
    late = Observer()
    with asking.approvals.subscribe(late):
        assert late.asked_ids == ["q1"]
        asking.approvals.answer("q1", DENY)
    await trio.testing.wait_all_tasks_blocked()
    assert asking.answers["q1"] == DENY


async def test_question_is_refused_at_its_deadline(autojump_clock, asking):
    with asking.approvals.subscribe(observer := Observer()):
        start = trio.current_time()
        answer = await asking.approvals.ask(question(), timeout=10)
    assert trio.current_time() - start == 10
    assert (answer.decision, answer.by) == ("deny", "timeout")
    assert observer.closed_ids == [("q1", "deny", "timeout")]


async def test_answer_after_the_deadline_does_not_count(autojump_clock, asking):
    asking.approvals.restore(question(deadline=trio.current_time() + 1))
    await trio.sleep(2)
    with pytest.raises(NoQuestionError):
        asking.approvals.answer("q1", ALLOW)
    answer = await asking.approvals.ask(question())
    assert answer.by == "timeout"


@pytest.mark.parametrize("observer", [None, Observer(is_blind=True), Observer(connection="c2")])
async def test_question_is_refused_at_once_when_nobody_attends(autojump_clock, asking, observer):
    if observer is not None:
        asking.approvals.add(observer)
    answer = await asking.approvals.ask(question())
    assert (answer.decision, answer.by) == ("deny", "unattended")
    assert observer is None or observer.asked_ids == []


async def test_question_waits_unattended_when_the_profile_says_so(autojump_clock, asking):
    await asking.start(question(), unattended="wait")
    await trio.sleep(10_000)
    assert asking.answers == {}
    asking.approvals.answer("q1", ALLOW)
    await trio.testing.wait_all_tasks_blocked()
    assert asking.answers["q1"] == ALLOW


async def test_question_is_refused_when_the_last_observer_leaves(autojump_clock, asking):
    with asking.approvals.subscribe(Observer()):
        with asking.approvals.subscribe(Observer()):
            await asking.start(question())
        await trio.testing.wait_all_tasks_blocked()
        assert asking.answers == {}
    await trio.testing.wait_all_tasks_blocked()
    assert asking.answers["q1"].by == "unattended"


async def test_question_that_is_declined_is_left_to_the_others(autojump_clock, asking):
    editor, user = Observer(), Observer()
    asking.approvals.add(editor)
    with asking.approvals.subscribe(user):
        await asking.start(question())
        asking.approvals.decline("q1", editor, "the editor knows no such session")
        await trio.testing.wait_all_tasks_blocked()
        assert asking.answers == {}
    await trio.testing.wait_all_tasks_blocked()
    answer = asking.answers["q1"]
    assert (answer.by, answer.reason) == ("unattended", "the editor knows no such session")


async def test_question_that_may_wait_is_refused_when_the_only_client_cannot_ask(
    autojump_clock, asking
):
    prompt = Observer()
    with asking.approvals.subscribe(prompt):
        await asking.start(question(), unattended="wait")
        asking.approvals.decline("q1", prompt, "there is no terminal to ask at")
        await trio.testing.wait_all_tasks_blocked()
        assert asking.answers["q1"].by == "unattended"


async def test_question_is_withdrawn_when_its_request_is_cancelled(autojump_clock, asking):
    with asking.approvals.subscribe(observer := Observer()):
        await asking.start(question())
        asking.scopes["q1"].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert observer.closed_ids == [("q1", "deny", "cancelled")]
        assert asking.approvals.pending == []
        with pytest.raises(NoQuestionError):
            asking.approvals.find("q1")


async def test_question_of_a_request_that_is_repeated_stays_when_the_request_is_cancelled(
    autojump_clock, asking
):
    with asking.approvals.subscribe(observer := Observer()):
        await asking.start(question(), is_repeated=lambda: True)
        asking.scopes["q1"].cancel()
        await trio.testing.wait_all_tasks_blocked()
        assert observer.closed_ids == []
        found = asking.approvals.unclaimed("c1", 1, b"f")
        assert found == question()
        await asking.start(found)
        asking.approvals.answer("q1", ALLOW)
        await trio.testing.wait_all_tasks_blocked()
    assert asking.answers == {"q1": ALLOW}
    assert observer.asked_ids == ["q1"]


async def test_questions_of_a_session_are_withdrawn(autojump_clock, asking):
    asking.approvals.add(Observer())
    await asking.start(question("q1"))
    await asking.start(question("q2", session="s2"))
    await asking.start(question("q3", connection="c2"))
    asking.approvals.withdraw("c1", "s1", reason="the turn was cancelled")
    await trio.testing.wait_all_tasks_blocked()
    assert {name: answer.by for name, answer in asking.answers.items()} == {"q1": "cancelled"}
    asking.approvals.withdraw("c1", reason="it has disconnected")
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(asking.answers) == ["q1", "q2"]
    asking.approvals.answer("q3", DENY)


async def test_answer_for_always_answers_the_sessions_other_questions_of_the_prefix(
    autojump_clock, asking
):
    asking.approvals.add(Observer())
    await asking.start(question("q1"))
    await asking.start(question("q2", command="git push origin"))
    await asking.start(question("q3", session="s2"))
    await asking.start(question("q4", connection="c2"))
    await asking.start(question("q5", prefix=("git",)))
    await asking.start(question("q6", prefix=None))
    await asking.start(question("q7", prefix=("git", "push", "-f")))
    asking.approvals.answer("q1", ALWAYS)
    await trio.testing.wait_all_tasks_blocked()
    assert sorted(asking.answers) == ["q1", "q2"]
    assert asking.answers["q2"].is_allowed
    assert asking.answers["q2"].by == "editor"
    for left in "q3", "q4", "q5", "q6", "q7":
        asking.approvals.answer(left, DENY)


async def test_command_without_a_prefix_cannot_be_allowed_always(autojump_clock, asking):
    asking.approvals.add(Observer())
    await asking.start(question(prefix=None))
    with pytest.raises(ApprovalError, match="allow it once"):
        asking.approvals.answer("q1", ALWAYS)
    asking.approvals.answer("q1", replace(DENY, scope="always"))


async def test_pending_questions_are_limited_for_each_connection_and_in_all(autojump_clock, asking):
    asking.approvals.add(Observer())
    for number in range(CONNECTION_PENDING_MAX):
        asking.approvals.restore(question(f"q{number}"))
    with pytest.raises(ApprovalError, match=f"{CONNECTION_PENDING_MAX} questions of this conn"):
        await asking.approvals.ask(question("one more"))
    for number in range(CONNECTION_PENDING_MAX, PENDING_MAX):
        asking.approvals.restore(question(f"q{number}", connection=f"c{number}"))
    with pytest.raises(ApprovalError, match=f"{PENDING_MAX} questions of all agents"):
        await asking.approvals.ask(question("one more", connection="new"))
    asking.approvals.answer("q0", ALLOW)
    await asking.start(question("one more", connection="new"))
    assert asking.answers == {}
    asking.approvals.answer("one more", ALLOW)


async def test_restored_question_keeps_its_deadline(autojump_clock, asking):
    asking.approvals.add(Observer())
    asking.approvals.restore(question(deadline=trio.current_time() + 5))
    start = trio.current_time()
    answer = await asking.approvals.ask(question(), timeout=100)
    assert trio.current_time() - start == 5
    assert answer.by == "timeout"


async def test_restored_question_waits_for_an_observer_before_it_is_refused(autojump_clock, asking):
    asking.approvals.restore(question(), grace=30)
    start = trio.current_time()
    answer = await asking.approvals.ask(question())
    assert trio.current_time() - start == 30
    assert answer.by == "unattended"
    asking.approvals.restore(question("q2"), grace=30)
    await asking.start(question("q2"))
    asking.approvals.add(Observer())
    await trio.sleep(100)
    assert asking.answers == {}
    asking.approvals.answer("q2", ALLOW)


async def test_answer_given_before_the_request_is_repeated_counts(autojump_clock, asking):
    asking.approvals.restore(question())
    asking.approvals.answer("q1", ALLOW)
    assert asking.approvals.pending == []
    found = asking.approvals.unclaimed("c1", 1, b"f")
    assert await asking.approvals.ask(found) == ALLOW
    assert asking.approvals.unclaimed("c1", 1, b"f") is None


async def test_answer_does_not_count_for_another_request_with_the_same_id(autojump_clock, asking):
    asking.approvals.restore(question())
    asking.approvals.answer("q1", ALLOW)
    assert asking.approvals.unclaimed("c1", 1, b"another command") is None
    # Not even for the first one, should it come after all.
    assert asking.approvals.unclaimed("c1", 1, b"f") is None


@pytest.mark.parametrize(("connection", "request_id"), [("c2", 1), ("c1", 2), ("c1", None)])
async def test_question_of_another_request_is_not_continued(
    autojump_clock, asking, connection, request_id
):
    asking.approvals.restore(question())
    assert asking.approvals.unclaimed(connection, request_id, b"f") is None
    assert asking.approvals.pending == [question()]


async def test_unclaimed_question_expires(autojump_clock, asking):
    with asking.approvals.subscribe(observer := Observer()):
        asking.approvals.restore(question("q1"))
        asking.approvals.restore(question("q3", connection="c2"))
        await asking.start(question("q2"))
        asking.approvals.expire_unclaimed("c1")
        assert [asked.id for asked in asking.approvals.pending] == ["q3", "q2"]
        assert observer.closed_ids == [("q1", "deny", "cancelled")]
        asking.approvals.answer("q2", ALLOW)


async def test_question_is_found_by_an_unambiguous_beginning_of_its_id(autojump_clock, asking):
    for name in "abcd", "abce", "ffff":
        asking.approvals.restore(question(name))
    assert asking.approvals.find("ff").id == "ffff"
    assert asking.approvals.find("abcd").id == "abcd"
    with pytest.raises(ApprovalError, match="type more of abcd, abce"):
        asking.approvals.find("abc")
    for wrong in "f", "zz":
        with pytest.raises(NoQuestionError, match="acpterm approvals"):
            asking.approvals.find(wrong)
    assert asking.approvals.find("@last").id == "ffff"
    with pytest.raises(ApprovalError, match="3 questions wait: say which ID"):
        asking.approvals.find("")


# Decisions of a session


def test_session_remembers_only_what_is_for_always():
    decisions = SessionDecisions()
    assert not decisions.remember(question(), ALLOW)
    assert decisions.find(question()) is None
    assert decisions.remember(question(), ALWAYS)
    found = decisions.find(question(command="git push origin"))
    assert found is not None
    assert (found.decision, found.by) == ("allow", "session")
    for other in ("git", "pull"), ("git", "push", "-f"), ("git",), None:
        assert decisions.find(question(prefix=other)) is None


def test_session_refuses_what_was_both_allowed_and_rejected():
    decisions = SessionDecisions(allowed=[["git", "push"]], rejected=[["git", "push"]])
    found = decisions.find(question())
    assert found is not None
    assert found.decision == "deny"


def test_session_remembers_a_rejected_command_without_a_prefix():
    decisions = SessionDecisions()
    asked = question(prefix=None, command="rm -rf $X")
    assert decisions.remember(asked, replace(DENY, scope="always"))
    restored = SessionDecisions(rejected_commands=decisions.rejected_commands)
    assert restored.find(asked) is not None
    assert restored.find(question(prefix=None, command="rm -rf $Y")) is None


def test_session_forgets_the_oldest_decision():
    decisions = SessionDecisions()
    for number in range(300):
        decisions.remember(question(prefix=("git", str(number))), ALWAYS)
    assert decisions.find(question(prefix=("git", "0"))) is None
    assert decisions.find(question(prefix=("git", "299"))) is not None
    assert decisions.size < 100_000


async def test_question_is_withdrawn_when_its_turn_is_cancelled_just_after_it_is_asked(asking):
    asking.approvals.add(Observer())
    answers = []

    async def ask(asked, begun):
        begun.set()
        answers.append(await asking.approvals.ask(asked))

    async def cancel(begun):
        await begun.wait()
        asking.approvals.withdraw("c1", "s1", reason="the turn was cancelled")

    # The order in which the tasks run is random, so several times.
    for number in range(20):
        begun = trio.Event()
        with trio.fail_after(DEADLINE_S):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(ask, question(f"q{number}"), begun)
                nursery.start_soon(cancel, begun)
    assert [answer.by for answer in answers] == ["cancelled"] * 20
