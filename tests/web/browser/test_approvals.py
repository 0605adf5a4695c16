"""Approvals in a browser."""

import pytest

from tests.support.asking import asking_variables
from tests.support.daemon import blocking_daemon

COMMAND = {"command": "echo", "args": ["run at last"]}


@pytest.fixture
def daemon(tmp_path):
    """Run a daemon that asks about most commands."""
    variables = asking_variables(tmp_path) | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with blocking_daemon(tmp_path / "daemon", **variables) as running:
        yield running


@pytest.fixture
def approvals(visit):
    """Open the approvals."""
    return visit("#/approvals")


def ask(agent, **params):
    return agent.start("terminal/create", sessionId=agent.session, **(COMMAND | params))


def test_command_runs_when_it_is_allowed(approvals, agent):
    asked = ask(agent)
    approvals.view.get_by_text("echo 'run at last'").first.wait_for()
    approvals.until(lambda: approvals.page.title().startswith("(1) "))
    approvals.button("Allow once").click()
    terminal = agent.result(asked)["terminalId"]
    agent.terminal("wait_for_exit", terminal)
    assert "run at last" in agent.terminal("output", terminal)["output"]
    approvals.until(lambda: not approvals.page.title().startswith("("))


def test_reason_of_a_denial_reaches_the_agent(approvals, agent):
    asked = ask(agent)
    approvals.view.get_by_role("textbox", name="Reason to deny").fill("use the other remote")
    approvals.button("Deny").click()
    with pytest.raises(AssertionError, match="use the other remote"):
        agent.result(asked)


def test_always_is_for_further_commands_of_the_session(approvals, agent):
    asked = ask(agent)
    approvals.button("Always allow").click()
    agent.result(asked)
    agent.result(ask(agent, args=["again"]))


def test_keyboard_alone_answers(approvals, agent):
    asked = ask(agent)
    approvals.button("Allow once").wait_for()
    approvals.press("j")
    approvals.press("a")
    agent.result(asked)


def test_answer_that_is_given_elsewhere_removes_the_question(approvals, daemon, agent):
    asked = ask(agent)
    approvals.button("Allow once").wait_for()
    (question,) = daemon.request("approval/list")["approvals"]
    daemon.request("approval/answer", approvalId=question["approvalId"], decision="allow")
    agent.result(asked)
    approvals.button("Allow once").wait_for(state="hidden")


def test_list_has_buttons_to_answer(page, agent):
    asked = ask(agent)
    page.button("Allow once").focus()
    page.press("Enter")
    agent.result(asked)
    page.button("Allow once").wait_for(state="hidden")
    asked = ask(agent, args=["another"])
    page.button("Deny").focus()
    page.press("Enter")
    with pytest.raises(AssertionError, match="refused"):
        agent.result(asked)


def test_long_command_is_answered_only_where_it_can_be_read(page, agent):
    asked = ask(agent, args=["x" * 400])
    page.page.get_by_role("link", name="Read and answer").click()
    page.button("Allow once").click()
    agent.result(asked)


def test_list_links_to_the_pending_approval(page, agent):
    asked = ask(agent)
    page.page.get_by_text("Approval needed").click()
    page.button("Allow once").click()
    agent.result(asked)


def test_command_with_markup_and_bidi_controls_is_inert(approvals, agent):
    ask(agent, args=["<b onclick=x>", "\u202egnp.exe"])
    approvals.view.get_by_text("<b onclick=x>").first.wait_for()
    assert "\u202e" not in approvals.page.content()
    assert "\\u202e" in approvals.view.inner_text()
    assert approvals.page.locator("#view b").count() == 0


def test_question_survives_the_worker(approvals, daemon, agent):
    ask(agent)
    approvals.button("Allow once").wait_for()
    daemon.kill_worker()
    approvals.until(lambda: daemon.request("approval/list")["approvals"])
    allow = approvals.button("Allow once")
    answer = approvals.view.get_by_text("Allowed on the page").first

    def is_answered():
        # An answer while the page is not connected reaches nobody, and can be repeated later.
        # The button disappears at any time: nothing here may wait for it.
        allow.evaluate_all("buttons => buttons.forEach(button => button.click())")
        return answer.is_visible()

    approvals.until(is_answered)
    assert daemon.request("approval/list")["approvals"] == []


def test_keys_reach_the_answers(page, agent):
    asked = ask(agent)
    # The second key must follow soon. Requests run concurrently: the second one may be asked first.
    hash_ = "location.hash === '#/approvals'"
    page.until(lambda: page.page.evaluate(hash_) or page.page.keyboard.type("gp"))
    denied = ask(agent)
    page.button("Deny").nth(1).wait_for()
    focused = "document.activeElement.textContent"
    page.until(lambda: page.page.evaluate(focused) == "Approvals")
    for name, answer in (("Allow once", asked), ("Deny", denied)):
        for _ in range(12):
            page.press("Tab")
            if page.page.evaluate(focused) == name:
                break
        page.press("Enter")
        if name == "Deny":
            with pytest.raises(AssertionError):
                agent.result(answer)
        else:
            agent.result(answer)
            page.until(lambda: page.button("Deny").count() == 1)
