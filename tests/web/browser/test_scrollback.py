"""The scrollback of a terminal in a browser: everything that is retained, read in pieces."""

import pytest

from tests.support.daemon import blocking_daemon
from tests.web.browser.page import open_page

COLOURED = "for i in $(seq 3000); do printf '\\033[3%dmline %d\\033[m\\n' $((i % 8)) $i; done"


def scroll_to_top(page, first):
    """Press keys until the first line of the window is `first`."""
    page.page.locator("#view .xterm-helper-textarea").focus()

    def is_top():
        page.press("Shift+PageUp")
        return page.lines[0] == first

    page.until(is_top)


@pytest.mark.parametrize("end", ["sleep 1000", "exit 0"])
def test_wheel_reaches_the_first_retained_line_in_its_colour(page, agent, daemon, end):
    terminal = agent.create("sh", "-c", f"{COLOURED}; {end}")
    daemon.run("wait", terminal, "--for", "line 3000", "--timeout", "60")
    page.show_terminal(terminal)
    page.until_drawn("line 3000")
    scroll_to_top(page, "line 1")
    assert page.lines[:3] == ["line 1", "line 2", "line 3"]
    red = page.page.locator("#view .xterm-rows .xterm-fg-1").first
    assert red.inner_text() == "line 1"


def find(page, text):
    """Find a text; return the element that says how often it is there."""
    page.press("Control+Shift+F")
    page.page.get_by_role("searchbox", name="Find in the output").fill(text)
    return page.page.locator(".term-find [role=status]")


@pytest.mark.parametrize("end", ["sleep 1000", "exit 0"])
def test_find_counts_every_match_of_what_is_retained(page, create, daemon, end):
    terminal = create("sh", "-c", f"echo needle; seq 1000; {end}")
    daemon.run("wait", terminal, "--for", "1000", "--timeout", "60")
    page.show_terminal(terminal)
    page.until_drawn("1000")
    result = find(page, "needle")
    page.until(lambda: result.inner_text() == "1 of 1")
    page.until_drawn("needle")
    find(page, "5")
    page.until(lambda: result.inner_text() == "1 of 300")
    page.press("Shift+Enter")
    page.until(lambda: result.inner_text() == "300 of 300")
    page.until_drawn("995")


SEARCH = """async () => {
  const { SearchBar } = await import("/assets/js/search.js");
  const bar = document.body.appendChild(document.createElement("div"));
  const matches = {
    find: () => new Promise((end) => { window.end = end; }), nearest: () => 0, clear() {},
    show: () => { window.shown += 1; }, onChange: (fn) => { window.change = fn; return () => {}; },
  };
  window.shown = 0;
  window.search = new SearchBar(bar, () => matches, () => {});
}"""


def test_find_shows_the_match_of_a_search_in_which_output_arrives(page):
    page.page.clock.install()
    page.page.evaluate(SEARCH)
    page.page.evaluate("search.open('first')")
    page.page.evaluate("end(5)")
    assert page.page.evaluate("shown") == 1
    page.page.locator("body > [role=search] input[type=search]").fill("second")
    page.page.clock.run_for(300)
    page.page.evaluate("change()")
    # Longer than until it would count again.
    page.page.clock.run_for(600)
    page.page.evaluate("end(1)")
    assert page.page.evaluate("shown") == 2
    page.page.clock.run_for(600)
    page.page.evaluate("end(1)")
    assert page.page.evaluate("shown") == 2


def test_find_searches_the_text_in_text(page, create, daemon):
    terminal = create("sh", "-c", "echo a needle; seq 1000; sleep 1000")
    daemon.run("wait", terminal, "--for", "1000", "--timeout", "60")
    page.show_terminal(terminal)
    page.until_drawn("1000")
    page.button("Show the output as text").click()
    page.page.locator(".term-text", has_text="needle").wait_for()
    result = find(page, "needle")
    page.until(lambda: result.inner_text() == "1 of 1")
    assert page.page.evaluate("getSelection().toString()") == "needle"
    assert page.page.locator(".term-text").evaluate("element => element.scrollTop") == 0
    find(page, "99")
    page.until(lambda: result.inner_text().endswith(" of 19"))


def find_lines(page):
    """Find all lines that are a number; return the element that says how many there are."""
    page.press("Control+Shift+F")
    page.page.get_by_label("Regex").check()
    page.page.get_by_role("searchbox", name="Find in the output").fill(r"^\d+$")
    return page.page.locator(".term-find [role=status]")


def test_scrollback_has_each_line_once_after_resizes_and_a_new_worker(page, create, daemon):
    script = (
        "for part in 1 2 3 4; do seq 500; echo part $part; read go; done; seq 500; echo end; cat"
    )
    terminal = create("sh", "-c", script)
    page.show_terminal(terminal)
    page.until_drawn("part 1")
    page.page.set_viewport_size({"width": 900, "height": 400})
    page.type("\n")
    page.until_drawn("part 2")
    page.page.set_viewport_size({"width": 1200, "height": 900})
    page.type("\n")
    page.until_drawn("part 3")
    daemon.kill_worker()
    # Nobody draws this part.
    daemon.request("terminal/write", terminalId=terminal, data="\n\n")
    page.until_drawn("end")
    result = find_lines(page)
    page.until(lambda: result.inner_text().endswith(" of 2500"))


def test_visitor_of_a_share_scrolls_and_finds_everything(browser, create, daemon):
    terminal = create("sh", "-c", f"{COLOURED}; sleep 1000")
    daemon.run("wait", terminal, "--for", "line 3000", "--timeout", "60")
    share = daemon.request("share/create", terminalId=terminal, write=False, forMs=60_000)
    visitor = open_page(browser, share["url"])
    visitor.until_drawn("line 3000")
    result = find(visitor, "line 1")
    visitor.until(lambda: result.inner_text() == "1111 of 1111")
    visitor.press("Enter")
    visitor.until(lambda: result.inner_text() == "1 of 1111")
    visitor.until(lambda: visitor.lines[:3] == ["line 1", "line 2", "line 3"])
    visitor.close()
    visitor.check()


def test_large_output_costs_nothing_until_it_is_scrolled_to(browser, tmp_path):
    raw = str(16 << 20)
    with blocking_daemon(tmp_path / "daemon", ACPTERM_RAW_BYTES=raw) as daemon:
        terminal = daemon.create("sh", "-c", f"seq -f '%.0f {'x' * 75}' 190000; sleep 1000")
        terminal = daemon.info(terminal)["terminalId"]
        daemon.run("wait", terminal, "--for", "^190000", "--timeout", "60")
        page = open_page(browser, daemon.request("web/open")["url"])
        page.wait_loaded()
        received = []
        session = page.context.new_cdp_session(page.page)
        session.send("Network.enable")
        session.on(
            "Network.webSocketFrameReceived",
            lambda event: received.append(len(event["response"]["payloadData"])),
        )
        page.show_terminal(terminal)
        page.until_drawn("190000")
        page.press("Shift+PageUp")
        page.until(lambda: not any("190000" in line for line in page.lines))
        assert sum(received) < 300_000
        result = find(page, "x y")
        # Until then, the page reads and parses all of the output.
        page.until(lambda: result.inner_text() == "nothing found", 120)
        assert sum(received) > 16 << 20
        find(page, "1 x")
        page.until(lambda: result.inner_text().endswith(" of 19000"), 120)
        page.page.get_by_label("Regex").check()
        find(page, "^1 x")
        page.until(lambda: result.inner_text() == "1 of 1", 120)
        page.until(lambda: page.lines[0].startswith("1 x"))
        page.close()
        page.check()
