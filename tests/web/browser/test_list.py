"""The list of terminals in a browser."""

import os
import pwd
import re
from urllib.parse import urlsplit

import pytest

from tests.support.blocking_agent import blocking_agent
from tests.support.daemon import blocking_daemon
from tests.web.browser.page import open_page

RLO = "\u202e"
MARKUP = "<img src=x onerror=alert(1)>"

# Counts the elements that are inserted into the list, or moved in it. A row is inserted as a whole.
COUNT_DRAWN = """() => {
  window.drawn = 0;
  const count = ({ addedNodes }) => [...addedNodes].filter(node => node.nodeType === 1).length;
  new MutationObserver(records => records.forEach(record => { window.drawn += count(record); }))
    .observe(document.querySelector("#list"), { childList: true, subtree: true });
}"""
# Types keys without a frame between them.
TYPE_AT_ONCE = """text => {
  document.activeElement.blur();
  for (const key of text) {
    const target = document.activeElement;
    const isFree = target.dispatchEvent(
      new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
    if (isFree && target.matches("input")) document.execCommand("insertText", false, key);
  }
}"""


def test_terminal_appears_when_an_agent_creates_it(page, agent):
    agent.create("sh", "-c", "sleep 1000")
    page.row("sleep 1000").wait_for()
    assert "tester" in page.page.locator("#list .group", has_text="sleep 1000").inner_text()


def test_exit_of_a_terminal_is_shown(page, agent):
    terminal = agent.create("sh", "-c", "read x; exit 3")
    page.row("waits for input").wait_for()
    agent.terminal("kill", terminal)
    page.row("ended by SIG").wait_for()


def test_terminals_that_wait_are_first_and_counted_in_the_title(page, agent):
    agent.create("sleep", "1000")
    agent.create("sleep", "2000")
    agent.create("sh", "-c", "echo password; read x")
    page.row("waits for input").wait_for()
    page.until(lambda: len(page.rows) == 3)
    assert "read x" in page.rows[0]
    page.until(lambda: re.match(r"\(1\) ", page.page.title()))


def test_terminals_of_two_agents_are_in_groups_of_their_own(page, daemon, agent):
    agent.create("sleep", "1000")
    with blocking_agent(daemon.socket, session="session-2") as other:
        other.create("sleep", "2000")
        daemon.create("sleep", "3000")
        groups = page.page.locator("#list .group")
        page.until(lambda: groups.count() == 3)
        for session, command in (("session-1", "1000"), ("session-2", "2000"), ("You", "3000")):
            group = groups.filter(has_text=session)
            assert group.locator(".row-command").all_inner_texts() == [f"sleep {command}"]


def test_markup_and_bidi_controls_in_names_and_commands_are_inert(page, daemon, agent):
    agent.create("sh", "-c", f": {MARKUP} {RLO}cba; sleep 1000")
    daemon.request("terminal/create", command="sleep", args=["1000"], name="plain")
    page.row("plain").wait_for()
    row = page.row("onerror")
    row.wait_for()
    assert page.page.locator("#list img").count() == 0
    text = page.page.locator("#list").inner_text()
    assert MARKUP in text
    assert RLO not in page.page.content()
    assert "\\u202e" in text


def test_rows_have_the_words_of_ls(page, daemon, agent):
    agent.create("sh", "-c", "read x")
    daemon.create("sh", "-c", "exit 3")
    for state in ("waits for input", "exited 3"):
        page.row(state).wait_for()
        assert state in daemon.run("ls", "--all")


def test_page_goes_on_when_the_worker_is_killed(page, daemon):
    daemon.create("sleep", "1000")
    page.row("sleep 1000").wait_for()
    daemon.kill_worker()
    daemon.create("sleep", "2000")
    page.row("sleep 2000").wait_for()
    assert page.row("sleep 1000").is_visible()


def test_page_goes_on_when_the_worker_is_replaced(page, daemon):
    daemon.create("sleep", "1000")
    page.row("sleep 1000").wait_for()
    daemon.run("restart")
    daemon.create("sleep", "2000")
    page.row("sleep 2000").wait_for()
    assert page.row("sleep 1000").is_visible()


def test_page_goes_on_when_the_daemon_is_started_again(browser, tmp_path):
    state = {"XDG_STATE_HOME": str(tmp_path / "state")}
    with blocking_daemon(tmp_path / "daemon", **state) as daemon:
        daemon.create("sleep", "1000")
        page = open_page(browser, daemon.request("web/open")["url"])
        page.row("sleep 1000").wait_for()
    page.page.get_by_text("reconnecting").wait_for()
    with blocking_daemon(tmp_path / "daemon", **state) as daemon:
        daemon.create("sleep", "2000")
        # It listens on the port that it used last.
        daemon.request("web/open")
        page.row("sleep 2000").wait_for()
        # An event may show the new terminal before the list is read.
        page.row("sleep 1000").wait_for(state="hidden")
        page.close()


@pytest.mark.exhaustive
def test_change_of_a_list_of_200_terminals_draws_one_row(page, daemon):
    for _ in range(200):
        daemon.create("sleep", "1000")
    page.until(lambda: len(page.rows) == 200)
    page.page.evaluate(COUNT_DRAWN)
    for _ in range(20):
        daemon.create("sleep", "1000")
        # Each change is drawn in a frame of its own.
        page.page.evaluate("new Promise(resolve => requestAnimationFrame(resolve))")
    page.until(lambda: len(page.rows) == 220)
    assert page.page.evaluate("drawn") == 20


def test_filter_gets_each_key_that_is_typed_at_once_from_every_view(page, daemon):
    terminal = daemon.info(daemon.create("sleep", "2000"))["terminalId"]
    page.row("sleep 2000").wait_for()
    field = page.page.get_by_label("Filter terminals")
    for route in ("#/", "#/audit", "#/policy"):
        page.go(route)
        page.page.locator(f'.nav [href="{route}"][aria-current]').wait_for()
        page.page.evaluate(TYPE_AT_ONCE, "/n2000")
        assert field.input_value() == "n2000", route
        assert urlsplit(page.page.url).fragment in ("", "/")
        field.press("Escape")
    # A screen that is there later does not take the keys.
    held = []
    page.page.route("**/vendor/**", lambda route: held.extend([route]))
    page.go(f"#/terminal/{terminal}")
    page.until(lambda: held)
    page.press("/")
    page.page.keyboard.type("20")
    page.page.route("**/vendor/**", lambda route: route.continue_())
    for route in held:
        route.continue_()
    page.screen.wait_for()
    page.view.locator(".term-state:not(:empty)").wait_for(state="attached")
    page.page.keyboard.type("00")
    assert field.input_value() == "2000"


def test_count_says_what_it_counts(page, agent, daemon):
    agent.create("sh", "-c", "read x")
    daemon.create("sleep", "1000")
    daemon.create("sh", "-c", "exit 3")
    summary = page.page.locator(".list-summary")
    page.until(lambda: summary.inner_text() == "2 running, 1 ended, 1 waits for you")
    page.page.get_by_label("Filter terminals").fill("1000")
    page.until(lambda: summary.inner_text() == "1 of 3 shown")
    assert page.page.locator(".nav .badge").first.get_attribute("aria-label") == "1 waiting"


def test_level_is_shown_if_a_command_is_dangerous(page, agent, daemon):
    agent.create("sleep", "1000")
    daemon.create("sleep", "2000")
    page.row("sleep 2000").wait_for()
    page.row("sleep 1000").wait_for()
    words = page.page.locator("#list").inner_text()
    assert "unknown" not in words
    assert "Level" not in words


def test_program_is_killed_in_its_row(page, agent, daemon):
    agent.create("sleep", "1000")
    row = page.row("sleep 1000")
    row.hover()
    row.get_by_role("button", name="Kill sleep 1000").click()
    page.confirm("Kill")
    page.row("ended by SIG").wait_for()
    row.hover()
    assert row.get_by_role("button").count() == 0
    assert "terminal" not in page.page.url


def test_all_that_have_ended_are_removed_after_one_question(page, agent, daemon):
    for status in (0, 3, 4):
        daemon.create("sh", "-c", f"exit {status}")
    daemon.create("sleep", "1000")
    agents = agent.create("sh", "-c", "exit 5")
    daemon.create("sh", "-c", "sleep 600 & exit 6")
    for state in ("exited 0", "exited 3", "exited 4", "exited 5", "exited 6, 1 still running"):
        page.row(state).wait_for()
    page.button("Remove ended").click()
    assert "3 terminals" in page.page.get_by_role("dialog").inner_text()
    page.confirm("Remove")
    page.until(lambda: len(page.rows) == 3)
    page.button("Remove ended").wait_for(state="hidden")
    left = {info["terminalId"] for info in daemon.request("terminal/list", all=True)["terminals"]}
    assert agents in left
    assert len(left) == 3


def test_list_can_be_used_with_the_keyboard_alone(page, daemon):
    for seconds in (1000, 2000):
        daemon.create("sleep", str(seconds))
    page.until(lambda: len(page.rows) == 2)
    page.press("l")
    page.press("j")
    page.press("Enter")
    page.until(lambda: "#/terminal/" in page.page.url)
    # Keys are the program's while the terminal has the focus.
    page.page.locator("#view .xterm-helper-textarea:focus").wait_for(state="attached")
    page.press("Control+Shift+E")
    page.page.locator("#list :focus").wait_for()
    # The second key must follow soon.
    page.until(lambda: page.page.url.endswith("#/") or page.page.keyboard.type("gt"))


def test_link_works_once(browser, daemon):
    link = daemon.request("web/open")["url"]
    for text in ("No terminals", "This link does not work"):
        page = open_page(browser, link)
        page.page.get_by_text(text).wait_for()
        assert urlsplit(link).fragment not in page.page.url
        page.close()


def test_browser_without_a_login_is_told_how_to_get_one(browser, daemon):
    link = urlsplit(daemon.request("web/open")["url"])
    page = open_page(browser, f"http://{link.netloc}/")
    page.page.get_by_text("This browser is not logged in").wait_for()
    page.close()


def test_list_fits_a_phone(visit, agent):
    agent.create("sh", "-c", "echo a rather long command that does not fit in a line; sleep 1000")
    page = visit(viewport={"width": 360, "height": 740})
    page.row("sleep 1000").wait_for()
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_errors_and_labels_show_invisible_characters_as_escapes(page, daemon):
    with blocking_agent(daemon.socket, session=f"session{RLO}-1") as agent:
        agent.tool_call("call", "title", agent.create("sleep", "1000"))
        link = page.page.get_by_role("link", name="Tool calls")
        link.wait_for()
        label = link.get_attribute("aria-label")
        page.button("New terminal").click()
        page.page.get_by_label("Directory").fill(f"/no{RLO}such")
        page.confirm("Create")
        toast = page.page.locator(".toast")
        toast.wait_for()
        page.page.locator("#live", has_text="such").wait_for(state="attached")
        shown = [label, toast.inner_text(), page.page.locator("#live").inner_text()]
    assert all("\\u202e" in text for text in shown), shown
    assert not any(RLO in text for text in shown), shown


def test_new_terminal_starts_at_home_or_where_the_last_one_did_with_the_users_shell(page, daemon):
    shell = daemon.env.get("SHELL") or pwd.getpwuid(os.getuid()).pw_shell
    for directory, expected in ((None, daemon.directory), ("/usr", "/usr"), (None, "/usr")):
        page.button("New terminal").click()
        if directory:
            page.page.get_by_label("Directory").fill(directory)
        page.page.get_by_label("Command").fill('echo "in $PWD with $SHELL"; sleep 1000')
        page.confirm("Create")
        page.until_drawn(f"in {expected} with {shell}")
        (info,) = daemon.request("terminal/list")["terminals"]
        assert info["cwd"] == str(expected)
        daemon.request("terminal/release", terminalId=info["terminalId"])
        page.go("#/")


def test_fragment_that_is_not_encoded_correctly_shows_the_list(page, daemon):
    daemon.create("sleep", "1000")
    page.go("#/audit")
    page.page.get_by_role("heading", name="Audit").first.wait_for()
    page.go("#/terminal/%")
    page.row("sleep 1000").wait_for()
    page.page.reload()
    page.row("sleep 1000").wait_for()


def test_what_a_command_has_left_running_is_shown_and_killed(page, agent):
    terminal = agent.create("sh", "-c", "sleep 600 & exit 3")
    row = page.row("exited 3, 1 still running")
    row.wait_for()
    assert row.locator(".dot").get_attribute("data-state") == "background"
    for width in 800, 700, 360:
        page.page.set_viewport_size({"width": width, "height": 700})
        state = row.locator(".cell-state > :last-child")
        assert state.evaluate("one => one.scrollWidth <= one.clientWidth"), width
    page.page.get_by_label("Show", exact=True).select_option("running")
    assert page.rows == ["sleep 600 & exit 3"]
    page.show_terminal(terminal)
    assert "sleep 600 (pid " in page.view.locator(".term-meta").inner_text()
    page.button("Kill the program").click()
    page.confirm("Kill")
    page.until(lambda: page.view.locator(".term-state").inner_text() == "exited 3")
