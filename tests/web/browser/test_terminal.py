"""One terminal in a browser: xterm.js is fed by the daemon's emulator."""

import base64
import contextlib
import re
import sys
from pathlib import Path

import pytest

from acpterm.web.pages import DIRECTORY

VENDOR = Path(DIRECTORY) / "vendor"
BIDI = "\u202e\u2066"
CLIPBOARD = "\x1b]52;c;" + base64.b64encode(b"stolen").decode() + "\x07"

# Records what a terminal types, in raw mode, after it has printed a query.
ANSWERS = """
import os, select, sys, termios, tty
tty.setraw(0)
os.write(1, b"ready\\r\\n")
os.read(0, 1)
os.write(1, sys.argv[1].encode().decode("unicode_escape").encode())
# The first answer comes late on a busy machine; a second one would soon follow it.
got = os.read(0, 1000)
while select.select([0], [], [], 2)[0]:
    got += os.read(0, 1000)
os.write(1, b"\\r\\ngot " + repr(got).encode() + b"\\r\\nend\\r\\n")
import time; time.sleep(1000)
"""

# Counts the connections from now on.
COUNT_CONNECTIONS = """() => {
  window.connections = 0;
  new MutationObserver(() => { window.connections += document.body.dataset.connection === "open"; })
    .observe(document.body, { attributeFilter: ["data-connection"] });
}"""


def screen_lines(daemon, terminal):
    """Return the lines of the screen as the daemon's emulator has them."""
    return [line.rstrip() for line in daemon.run("screen", terminal).splitlines()]


def rstripped(lines):
    """Return the lines without empty ones at the end."""
    lines = list(lines)
    while lines and not lines[-1]:
        lines.pop()
    return lines


def test_output_streams(page, agent):
    terminal = agent.create("sh", "-c", "for i in 1 2 3; do echo line $i; sleep 0.3; done; read x")
    page.show_terminal(terminal)
    for number in (1, 2, 3):
        page.until_drawn(f"line {number}")


def test_link_of_a_share_leaves_the_user_of_the_same_browser_logged_in(page, create, daemon):
    terminal = create("sh", "-c", "echo shared screen; read x")
    url = daemon.run("share", terminal).strip()
    visitor = page.page.context.new_page()
    visitor.goto(url)
    for _ in range(2):
        visitor.locator("#view .xterm-rows", has_text="shared screen").wait_for()
        visitor.reload()
    page.page.reload()
    page.wait_loaded()
    page.row("shared screen").wait_for()


def test_typing_reaches_the_users_terminal(page, create):
    terminal = create("sh", "-c", "read word; echo you typed $word; sleep 1000")
    page.show_terminal(terminal)
    page.type("hällo 漢字")
    page.press("Enter")
    page.until_drawn("you typed hällo 漢字")


def test_agents_terminal_cannot_be_typed_into_until_taken_over(page, agent):
    terminal = agent.create("sh", "-c", "read word; echo you typed $word; sleep 1000")
    page.show_terminal(terminal)
    page.type("no\n")
    page.page.get_by_text("you can only read").wait_for()
    page.button("Take over from the agent, to type").click()
    page.confirm("Take over")
    page.button("Take over from the agent, to type").wait_for(state="hidden")
    page.type("yes\n")
    page.until_drawn("you typed yes")


def test_answer_is_typed_into_an_agents_terminal_which_stays_the_agents(page, agent, daemon):
    script = "printf 'Continue? [y/N] '; read word; echo you typed $word; cat"
    terminal = agent.create("sh", "-c", script, _meta={"acpterm": {"cols": 70, "rows": 20}})
    page.show_terminal(terminal)
    page.until_drawn("[y/N]")
    page.type("n")
    page.page.get_by_text("Press Type to answer").wait_for()
    page.button("Type into the agent's terminal, which stays the agent's").click()
    page.type("y\n")
    page.until_drawn("you typed y")
    page.button("Type into the agent's terminal, which stays the agent's").click()
    page.type("more\n")
    page.page.get_by_text("you can only read").wait_for()
    info = daemon.info(terminal)
    assert (info["owner"], info["cols"], info["rows"]) == ("agent", 70, 20)
    assert not any("more" in line for line in page.lines)


@pytest.mark.parametrize("command", ["kill", "restart"])
def test_typing_while_the_worker_is_replaced_loses_no_character(page, create, daemon, command):
    terminal = create("cat")
    page.show_terminal(terminal)
    page.type("ab")
    if command == "kill":
        daemon.kill_worker()
    else:
        daemon.run("restart")
    page.type("cdefgh\n")
    page.until(lambda: [line for line in page.lines if line] == ["abcdefgh"] * 2)


def test_vim_draws_as_in_the_emulator(page, create, daemon, tmp_path):
    (tmp_path / "text.py").write_text(
        "".join(f"def f{i}(): return '漢字 é {i}'\n" for i in range(200))
    )
    terminal = create(
        "vim", "-u", "NONE", "-c", "syntax on | set number ruler", "text.py", cwd=str(tmp_path)
    )
    page.show_terminal(terminal)
    page.until_drawn("def f0")
    page.type("100G5ihello ")
    page.press("Escape")
    page.type("zt")
    page.until_drawn("hello hello")
    page.until(lambda: rstripped(page.lines) == rstripped(screen_lines(daemon, terminal)))


def test_joining_late_costs_a_screen_not_a_backlog(page, create, daemon):
    lines = "for i in $(seq 200000); do echo line $i of the output; done; echo done; sleep 1000"
    terminal = create("sh", "-c", lines)
    daemon.run("wait", terminal, "--for", "done", "--timeout", "60")
    received = []
    session = page.context.new_cdp_session(page.page)
    session.send("Network.enable")
    session.on(
        "Network.webSocketFrameReceived",
        lambda event: received.append(len(event["response"]["payloadData"])),
    )
    page.show_terminal(terminal)
    page.until_drawn("line 200000")
    assert sum(received) < 200_000


def test_worker_is_killed_and_the_terminal_goes_on(page, create, daemon):
    terminal = create("cat")
    page.show_terminal(terminal)
    page.type("before\n")
    page.until(lambda: [line for line in page.lines if line] == ["before"] * 2)
    page.page.evaluate(COUNT_CONNECTIONS)
    daemon.kill_worker()
    page.until(lambda: page.page.evaluate("connections"))
    page.type("after\n")
    page.until(lambda: [line for line in page.lines if line] == ["before"] * 2 + ["after"] * 2)


def test_osc_52_does_not_reach_the_clipboard(visit, create):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    page.page.evaluate("navigator.clipboard.writeText('mine')")
    terminal = create("printf", f"{CLIPBOARD}printed\\n")
    page.show_terminal(terminal)
    page.until_drawn("printed")
    assert page.page.evaluate("navigator.clipboard.readText()") == "mine"


def test_link_with_a_javascript_address_is_inert(page, create):
    link = r"\033]8;;javascript:document.title=1\033\\click\033]8;;\033\\"
    terminal = create("sh", "-c", f"printf '{link}'; sleep 1000")
    page.show_terminal(terminal)
    page.until_drawn("click")
    title = page.page.title()
    box = page.screen.bounding_box()
    page.page.mouse.move(box["x"] + 12, box["y"] + 8)
    page.page.mouse.click(box["x"] + 12, box["y"] + 8)
    page.page.keyboard.down("Control")
    page.page.mouse.click(box["x"] + 12, box["y"] + 8)
    page.page.keyboard.up("Control")
    page.page.wait_for_timeout(300)
    assert page.page.title() == title
    assert len(page.context.pages) == 1
    assert page.page.locator("a[href^='javascript:']").count() == 0


def test_titles_with_markup_and_bidi_controls_are_inert(page, create):
    sequence = rf"\033]2;<img src=x onerror=alert(1)>{BIDI}\007"
    terminal = create("sh", "-c", f"printf '{sequence}'; echo {BIDI}abc; sleep 1000")
    page.show_terminal(terminal)
    page.until_drawn("abc")
    assert page.page.locator("#view img").count() == 0
    content = page.page.content() + page.page.title()
    assert not any(character in content for character in BIDI)


@pytest.mark.costly
@pytest.mark.parametrize(
    "query",
    [r"\x1b[6n", r"\x1b[c", r"\x1b[>c", r"\x1b]11;?\x1b\\", r"\x1b[?2026$p", r"\x1bP$qm\x1b\\"],
)
def test_query_is_answered_once(page, create, daemon, query):
    terminal = create(sys.executable, "-c", ANSWERS, query)
    alone = create(sys.executable, "-c", ANSWERS, query)
    page.show_terminal(terminal)
    page.until_drawn("ready")
    page.type("x")
    daemon.request("terminal/write", terminalId=alone, data="x")
    page.until_drawn("end")
    page.until(lambda: "end" in daemon.run("screen", alone))

    def answer(lines):
        return next(re.sub(r"\d+;\d+R", "R", line) for line in lines if line.startswith("got "))

    assert answer(page.lines) == answer(screen_lines(daemon, alone))


def test_paste_of_several_lines_is_confirmed_and_bracketed(page, create):
    script = r"stty raw -echo; printf '\033[?2004hready\r\n'; cat -v"
    terminal = create("sh", "-c", script)
    page.show_terminal(terminal)
    page.until_drawn("ready")
    page.paste("one\ntwo\x1b[201~")
    page.confirm("Paste")
    page.until_drawn("^[[200~one^Mtwo")
    # Text that is pasted cannot end the brackets.
    assert "".join(page.lines).count("^[[201~") == 1


def test_paste_of_several_lines_can_be_cancelled(page, create):
    terminal = create("cat")
    page.show_terminal(terminal)
    page.paste("one\ntwo\n")
    page.confirm("Cancel")
    page.paste("three")
    page.until_drawn("three")
    assert not any("one" in line for line in page.lines)


def test_kill_ends_the_program(page, agent):
    terminal = agent.create("sleep", "1000")
    page.show_terminal(terminal)
    page.button("Kill the program").click()
    page.confirm("Kill")
    page.row("ended by SIG").wait_for()


def test_text_size_changes_the_number_of_columns(page, create, daemon):
    terminal = create("cat")
    page.show_terminal(terminal)
    page.until(lambda: daemon.info(terminal)["attached"] == 1)
    before = daemon.size(terminal)
    page.page.get_by_role("button", name="larger text").click()
    page.until(lambda: daemon.size(terminal)[0] < before[0])
    page.page.get_by_role("button", name="smaller text").click()
    # If it fails, the assertion shows the sizes. What is above the screen may change the rows.
    with contextlib.suppress(TimeoutError):
        page.until(lambda: daemon.size(terminal)[0] == before[0])
    assert daemon.size(terminal)[0] == before[0], f"{daemon.size(terminal)}, not {before}"


def test_search_finds_text_of_the_scrollback(page, create, daemon):
    terminal = create("sh", "-c", "echo ready; read go; echo needle; seq 1000; sleep 1000")
    page.show_terminal(terminal)
    page.until_drawn("ready")
    page.type("\n")
    page.until_drawn("1000")
    assert not any("needle" in line for line in page.lines)
    page.press("Control+Shift+F")
    page.page.get_by_role("searchbox", name="Find in the output").fill("needle")
    page.page.get_by_text("1 of 1").wait_for()
    page.until_drawn("needle")


def test_find_bar_is_over_the_screen_which_keeps_its_size(page, create):
    terminal = create("sh", "-c", "echo ready; sleep 1000")
    page.show_terminal(terminal)
    page.until_drawn("ready")
    page.press("Control+Shift+F")
    bar = page.page.get_by_role("searchbox", name="Find in the output")
    bar.fill("ready")
    page.page.get_by_text("1 of 1").wait_for()
    tops = page.page.evaluate(
        "['.term-stage', '.term-find', '.term-frame']"
        ".map((part) => document.querySelector(part).getBoundingClientRect().top)"
    )
    assert len(set(tops)) == 1


def test_selection_is_copied(visit, create):
    page = visit(permissions=["clipboard-read", "clipboard-write"])
    terminal = create("sh", "-c", "echo copied; sleep 1000")
    page.show_terminal(terminal)
    page.until_drawn("copied")

    def is_copied():
        # A change of the size paints the screen again, which removes the selection.
        box = page.screen.bounding_box()
        page.page.mouse.dblclick(box["x"] + 12, box["y"] + 8)
        page.press("Control+Shift+C")
        return page.page.evaluate("navigator.clipboard.readText()") == "copied"

    page.until(is_copied)


def test_terminal_of_an_agent_fits_a_phone(visit, agent):
    terminal = agent.create("sh", "-c", "echo narrow; sleep 1000", _meta={"acpterm": {"cols": 80}})
    page = visit(viewport={"width": 360, "height": 740})
    page.show_terminal(terminal)
    page.until_drawn("narrow")
    page.until(lambda: page.screen.bounding_box()["width"] <= 360)
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_terminal_that_is_too_wide_for_a_phone_scrolls_alone(visit, agent):
    terminal = agent.create("sh", "-c", "echo wide; sleep 1000", _meta={"acpterm": {"cols": 200}})
    page = visit(viewport={"width": 360, "height": 740})
    page.show_terminal(terminal)
    page.until_drawn("wide")
    # Smaller text could not be read.
    page.page.locator(".term-frame").evaluate("element => { element.scrollLeft = 10000; }")
    page.until(lambda: page.screen.bounding_box()["x"] < 0)
    box = page.screen.bounding_box()
    assert box["x"] + box["width"] <= 360
    assert page.page.evaluate("document.documentElement.scrollWidth") <= 360


def test_terminal_says_how_to_build_the_page(page, create):
    page.page.route("**/vendor/*.mjs", lambda route: route.fulfill(status=404))
    page.go(f"#/terminal/{create('cat')}")
    page.view.get_by_text("This page was not built").wait_for()
    assert "make page" in page.view.inner_text()
    # Chromium reports each file that is missing.
    page.until(lambda: len(page.faults) == len(list(VENDOR.glob("*.mjs"))))
    page.faults.clear()
