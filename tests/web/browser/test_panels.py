"""The audit log, the recordings and the policy in a browser."""

import pytest

from tests.support.asking import asking_variables
from tests.support.daemon import blocking_daemon


@pytest.fixture
def daemon(tmp_path):
    """Run a daemon that asks about most commands, and records terminals."""
    variables = asking_variables(tmp_path) | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with blocking_daemon(tmp_path / "daemon", ACPTERM_RECORD="true", **variables) as running:
        yield running


def test_audit_log_is_filtered_by_action(visit, agent):
    agent.terminal("wait_for_exit", agent.create("env"))
    page = visit("#/audit")
    actions = page.view.locator("tbody .audit-entry .audit-event")
    page.until(lambda: actions.count() > 1)
    page.page.get_by_role("combobox", name="Action").select_option("exit")
    page.until(lambda: set(actions.all_inner_texts()) == {"exit"})


def test_new_entries_of_the_audit_log_appear(visit, agent):
    page = visit("#/audit")
    page.page.get_by_role("heading", name="Audit log").wait_for()
    agent.create("env", "A=needle")
    page.view.get_by_text("A=needle").first.wait_for()


def test_recording_is_played(visit, daemon):
    daemon.run("wait", daemon.create("sh", "-c", "echo recorded; sleep 0.2; echo later"))
    page = visit("#/recordings")
    page.view.get_by_role("link", name="echo recorded").click()
    page.until_drawn("recorded")
    page.until_drawn("later")


def test_decision_for_a_command_is_shown_while_it_is_typed(visit):
    page = visit("#/policy")
    command = page.page.get_by_role("textbox", name="Command")
    for text, decision in (("true", "Allowed"), ("printf x", "Asked")):
        command.fill(text)
        page.view.get_by_text(decision, exact=True).first.wait_for()


def test_policy_shows_the_profile_and_the_provider_in_use_and_what_has_set_them(visit, daemon):
    source = daemon.request("status")["sources"]["profile"]
    text = f"In use: profile asking, by {source}; provider local, by default."
    visit("#/policy").view.get_by_text(text).wait_for()
