"""Permission decisions: rules, questions and cancellation."""

import os
import termios

import pytest
import trio
import trio.testing

from acpterm.acp.agent import PermissionOption
from acpterm.agents.prompt import permissions as module
from acpterm.agents.prompt.permissions import NoTerminalError, Permissions
from tests.support.ptys import open_pair

ONCE = PermissionOption("once", "Yes", "allow_once")
ALWAYS = PermissionOption("always", "Yes, always", "allow_always")
NO = PermissionOption("no", "No", "reject_once")
NEVER = PermissionOption("never", "Never", "reject_always")
ALL = [NEVER, ALWAYS, NO, ONCE]
CANCELLED = None


class User:
    """Replaces the user at the terminal: `answers` has the choices, None for end of input."""

    def __init__(self, monkeypatch, *answers):
        self.answers = list(answers)
        self.asked = []
        self.asking = 0
        self.may_answer = trio.Event()
        self.may_answer.set()
        monkeypatch.setattr(module, "choose", self.choose)

    async def choose(self, question, answers, show):
        await show()
        self.asking += 1
        assert self.asking == 1, "two questions at a time"
        try:
            self.asked.append((question, list(answers)))
            await self.may_answer.wait()
            return self.answers.pop(0)
        finally:
            self.asking -= 1


@pytest.fixture
def no_user(monkeypatch):
    return User(monkeypatch)


@pytest.mark.parametrize(
    ("rule", "kind", "chosen", "verdict"),
    [
        ("all", "delete", ONCE, "allowed"),
        ("all", "read", ONCE, "allowed"),
        ("reads", "read", ONCE, "allowed"),
        ("reads", "search", ONCE, "allowed"),
        ("reads", "edit", NO, "refused"),
        ("reads", "execute", NO, "refused"),
        ("reads", "other", NO, "refused"),
        ("reads", "fetch", NO, "refused"),
        ("none", "read", NO, "refused"),
        ("none", "execute", NO, "refused"),
    ],
)
async def test_rule_chooses_the_once_option_with_a_notice(rule, kind, chosen, verdict, no_user):
    notices = []
    answer = await Permissions(rule, notices.append).decide("do\x1b[2J it", kind, ALL)
    assert answer == chosen
    assert notices == [f"{verdict}: do\\x1b[2J it (--allow {rule})"]
    assert no_user.asked == []


@pytest.mark.parametrize(
    ("rule", "options", "answer"),
    [
        ("all", [NO, ALWAYS], ALWAYS),
        ("none", [NEVER, ONCE], NEVER),
        ("all", [NO, NEVER], CANCELLED),
        ("none", [ONCE, ALWAYS], CANCELLED),
        ("all", [], CANCELLED),
    ],
)
async def test_rule_uses_the_options_that_are_offered(rule, options, answer):
    assert await Permissions(rule, lambda _: None).decide("do it", "edit", options) == answer


async def test_user_chooses_one_of_the_agents_options(monkeypatch):
    user, notices = User(monkeypatch, 1), []
    assert await Permissions("ask", notices.append).decide("do it", "edit", ALL) == ALWAYS
    assert user.asked == [("May the agent do this? do it", ["Never", "Yes, always", "No", "Yes"])]
    assert notices == []


async def test_request_is_refused_with_a_notice_when_there_is_no_terminal(monkeypatch):
    async def no_user(*_):
        raise NoTerminalError

    monkeypatch.setattr(module, "choose", no_user)
    notices = []
    assert await Permissions("ask", notices.append).decide("do it", "read", ALL) == NO
    assert notices == [
        "refused: do it (there is no terminal to ask at; --allow says what else may be)"
    ]


async def test_end_of_input_refuses(monkeypatch):
    User(monkeypatch, None)
    notices = []
    assert await Permissions("ask", notices.append).decide("do it", "read", ALL) == NO
    assert notices == ["refused: do it (nothing was chosen)"]


async def test_questions_are_asked_one_at_a_time(monkeypatch):
    user = User(monkeypatch, 2, 3)
    user.may_answer = trio.Event()
    permissions, answers = Permissions("ask", lambda _: None), {}

    async def decide(title):
        answers[title] = await permissions.decide(title, "edit", ALL)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(decide, "a")
        nursery.start_soon(decide, "b")
        await trio.testing.wait_all_tasks_blocked()
        assert len(user.asked) == 1
        user.may_answer.set()
    first = user.asked[0][0].removeprefix("May the agent do this? ")[0]
    assert answers[first] == NO
    assert answers["b" if first == "a" else "a"] == ONCE


async def test_cancel_answers_pending_and_later_requests(monkeypatch):
    user, notices = User(monkeypatch), []
    user.may_answer = trio.Event()
    permissions, answers = Permissions("ask", notices.append), []

    async def decide(title):
        answers.append(await permissions.decide(title, "edit", ALL))

    async with trio.open_nursery() as nursery:
        nursery.start_soon(decide, "a")
        nursery.start_soon(decide, "b")
        await trio.testing.wait_all_tasks_blocked()
        permissions.cancel()
    assert answers == [CANCELLED, CANCELLED]
    assert await permissions.decide("c", "edit", ALL) == CANCELLED
    assert (len(user.asked), notices) == (1, [])


async def test_cancel_overrides_a_rule():
    permissions = Permissions("all", lambda _: None)
    permissions.cancel()
    assert await permissions.decide("do it", "edit", ALL) == CANCELLED


async def test_request_without_options_is_not_asked(monkeypatch):
    user = User(monkeypatch, None)
    assert await Permissions("ask", lambda _: None).decide("do it", "edit", []) == CANCELLED
    assert user.asked == []


async def test_question_is_cancelled_while_the_terminal_stops_its_output(monkeypatch):
    master, slave = open_pair(80, 24)
    monkeypatch.setattr(os, "open", lambda *_: os.dup(slave))
    monkeypatch.setattr(os, "tcgetpgrp", lambda _: os.getpgrp())
    # As Ctrl-S does.
    termios.tcflow(slave, termios.TCOOFF)
    try:
        with trio.move_on_after(0.1) as scope:
            await module.choose("May it?", ["yes"], trio.lowlevel.checkpoint)
        assert scope.cancelled_caught
    finally:
        termios.tcflow(slave, termios.TCOON)
        os.close(slave)
        os.close(master)
