"""Shares of one terminal in a browser."""

import pytest

from tests.web.browser.page import open_page


@pytest.fixture
def follow(browser, daemon):
    """Return a function that shares a terminal and opens the link in another browser."""
    opened = []

    def follow(terminal, *, write):
        share = daemon.request("share/create", terminalId=terminal, write=write, forMs=60_000)
        opened.append(open_page(browser, share["url"]))
        opened[-1].screen.wait_for()
        return opened[-1], share

    yield follow
    for page in opened:
        page.close()
        page.check()


def test_read_only_share_reads_and_cannot_write(follow, create, daemon):
    terminal = create("sh", "-c", "echo ready; cat")
    page, _ = follow(terminal, write=False)
    page.until_drawn("ready")
    page.type("from the share\n")
    page.page.get_by_text("This link can only read").wait_for()
    daemon.request("terminal/write", terminalId=terminal, data="from the user\n")
    page.until_drawn("from the user")
    assert not any("share" in line for line in page.lines)


def test_share_with_write_types(follow, create):
    terminal = create("sh", "-c", "echo ready; cat")
    page, _ = follow(terminal, write=True)
    page.until_drawn("ready")
    page.type("from the share\n")
    page.until(lambda: page.lines.count("from the share") == 2)


def test_share_shows_nothing_but_its_terminal(follow, create, daemon):
    daemon.create("sleep", "1000")
    page, _ = follow(create("sh", "-c", "echo ready; cat"), write=False)
    page.until_drawn("ready")
    assert page.page.get_by_role("navigation").count() == 0
    assert "sleep 1000" not in page.page.content()


def test_revoked_share_ends_at_once(follow, create, daemon):
    page, share = follow(create("sh", "-c", "echo ready; cat"), write=False)
    page.until_drawn("ready")
    daemon.request("share/revoke", shareId=share["shareId"])
    page.page.get_by_text("This share has ended").wait_for()


@pytest.mark.exhaustive
def test_share_and_user_are_logged_in_in_one_browser(page, create, daemon):
    terminal = create("sh", "-c", "echo ready; cat")
    share = daemon.request("share/create", terminalId=terminal, write=False, forMs=60_000)
    visitor = page.context.new_page()
    visitor.goto(share["url"])
    for _ in range(2):
        visitor.locator("#view .xterm-rows", has_text="ready").wait_for()
        assert visitor.get_by_role("navigation").count() == 0
        visitor.reload()
        page.page.reload()
        page.wait_loaded()
        page.row("echo ready").wait_for()
    cookies = {cookie["name"] for cookie in page.context.cookies()}
    port = page.address.rpartition(":")[2]
    assert cookies == {f"acpterm-{port}", f"acpterm-share-{port}"}
    daemon.request("share/revoke", shareId=share["shareId"])
    visitor.get_by_text("This share has ended").wait_for()
    page.page.reload()
    page.wait_loaded()


def test_user_shares_a_terminal_on_the_page(page, browser, create, daemon):
    terminal = create("sh", "-c", "echo ready; cat")
    page.show_terminal(terminal)
    page.button("Share this terminal by a link").click()
    dialog = page.page.get_by_role("dialog")
    dialog.wait_for()
    assert not daemon.request("share/list")["shares"]
    dialog.get_by_role("button", name="Make a link").click()
    page.until(lambda: daemon.request("share/list")["shares"])


@pytest.mark.exhaustive
def test_link_has_the_origin_of_the_page(browser, create, daemon):
    login = daemon.request("web/open")["url"].replace("127.0.0.1", "localhost")
    page = open_page(browser, login)
    page.wait_loaded()
    page.show_terminal(create("sh", "-c", "echo ready; cat"))
    page.button("Share this terminal by a link").click()
    page.button("Make a link").click()
    link = page.page.get_by_role("textbox", name="Link")
    page.until(lambda: link.is_visible() and link.input_value())
    assert link.input_value().startswith(f"http://{page.address}/share#")
    visitor = open_page(browser, link.input_value())
    visitor.until_drawn("ready")
    for one in (visitor, page):
        one.close()
        one.check()


def test_dialog_reads_the_shares_again_after_a_reconnect(page, create, daemon):
    page.show_terminal(create("cat"))
    page.button("Share this terminal by a link").click()
    page.button("Make a link").click()
    revoke = page.page.get_by_role("button", name="Revoke")
    revoke.wait_for()
    (share,) = daemon.request("share/list")["shares"]
    daemon.request("share/revoke", shareId=share["shareId"])
    daemon.kill_worker()
    revoke.wait_for(state="hidden")
    page.page.get_by_role("textbox", name="Link").wait_for(state="hidden")
