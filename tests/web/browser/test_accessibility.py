"""No view has a serious fault of accessibility, light and dark, wide and on a phone."""

import pytest

from tests.support.asking import asking_variables
from tests.support.daemon import blocking_daemon
from tests.web.browser.axe import faults

PHONE = {"width": 360, "height": 740}


@pytest.fixture
def daemon(tmp_path):
    """Run a daemon that asks about most commands, and records terminals."""
    variables = asking_variables(tmp_path) | {"XDG_STATE_HOME": str(tmp_path / "state")}
    with blocking_daemon(tmp_path / "daemon", ACPTERM_RECORD="true", **variables) as running:
        yield running


@pytest.fixture
def shown(visit):
    return visit(color_scheme="light")


def check(shown):
    """Fail if the view has a fault: in light and dark colours, then after it became narrow."""
    found = {"light": faults(shown)}
    shown.page.emulate_media(color_scheme="dark")
    found["dark"] = faults(shown)
    shown.page.emulate_media(color_scheme="light")
    shown.page.set_viewport_size(PHONE)
    # The page adapts in the next frame.
    shown.page.evaluate("() => new Promise(done => requestAnimationFrame(() => setTimeout(done)))")
    found["phone"] = faults(shown)
    assert not any(found.values()), found


def create(daemon, *command):
    return daemon.info(daemon.create(*command))["terminalId"]


def test_empty_list(shown):
    check(shown)


def test_shortcuts(shown):
    shown.press("?")
    shown.page.get_by_role("dialog").wait_for()
    check(shown)


def test_list(shown, daemon, agent):
    agent.create("env")
    daemon.create("sh", "-c", "read x")
    daemon.create("sh", "-c", "exit 3")
    agent.start("terminal/create", sessionId=agent.session, command="sleep", args=["1000"])
    shown.row("waits for input").wait_for()
    shown.row("exited 3").wait_for()
    shown.page.get_by_text("Approval needed").wait_for()
    check(shown)


def test_terminal(shown, daemon):
    colours = "".join(f"\\033[3{colour}mcolour {colour}\\n" for colour in range(8))
    shown.show_terminal(create(daemon, "sh", "-c", f"printf '{colours}'; read x"))
    shown.until_drawn("colour 7")
    check(shown)


def test_search_in_a_terminal(shown, daemon):
    shown.show_terminal(create(daemon, "sh", "-c", "echo ready; read x"))
    shown.until_drawn("ready")
    shown.press("Control+Shift+F")
    shown.page.get_by_role("searchbox", name="Find in the output").wait_for()
    check(shown)


def test_dialog_of_a_terminal(shown, daemon):
    shown.show_terminal(create(daemon, "sh", "-c", "echo ready; read x"))
    shown.until_drawn("ready")
    shown.button("Kill the program").click()
    shown.page.get_by_role("dialog").wait_for()
    check(shown)


def test_session(shown, agent):
    terminal = agent.create("env")
    agent.tool_call("call", "List the environment", terminal)
    shown.page.get_by_role("link", name="Tool calls").click()
    shown.page.get_by_text("List the environment").wait_for()
    check(shown)


def test_approvals(shown, daemon, agent):
    agent.start("terminal/create", sessionId=agent.session, command="sleep", args=["1000"])
    shown.go("#/approvals")
    shown.button("Allow once").wait_for()
    check(shown)


def test_audit_log(shown, daemon, agent):
    # An entry that is new while the view is shown has other colours for some seconds.
    agent.terminal("wait_for_exit", agent.create("env"))
    shown.go("#/audit")
    shown.view.locator("tbody tr").first.wait_for()
    check(shown)


def test_recordings(shown, daemon):
    daemon.run("wait", create(daemon, "echo", "recorded"))
    shown.go("#/recordings")
    shown.page.get_by_role("heading", name="Recordings").wait_for()
    check(shown)


def test_policy(shown):
    shown.go("#/policy")
    shown.page.get_by_role("textbox", name="Command").fill("printf x")
    shown.page.get_by_text("Asked", exact=True).first.wait_for()
    check(shown)
