"""Links and logins in a browser."""

import pytest

from tests.support.browser import Visitor
from tests.web.browser.page import open_page

REFUSED = "Failed to load resource: the server responded with a status of 403"


@pytest.mark.exhaustive
@pytest.mark.parametrize("width", [360, 1200])
def test_log_out_ends_the_login_in_all_tabs(visit, width):
    page = visit("#/approvals", viewport={"width": width, "height": 740})
    other = page.context.new_page()
    other.goto(f"http://{page.address}/")
    other.locator("#list .empty:visible").wait_for()
    button = page.button("Log out")
    box = button.bounding_box()
    assert box["x"] + box["width"] <= width
    button.focus()
    page.press("Enter")
    page.confirm("Cancel")
    page.press("Enter")
    page.confirm("Log out")
    for tab in (page.page, other):
        tab.get_by_text("This browser is not logged in").wait_for()
        assert tab.get_by_role("navigation").count() == 0
        tab.evaluate("location.hash = '#/policy'")
        tab.reload()
        tab.get_by_text("This browser is not logged in").wait_for()
    assert page.context.cookies() == []


def test_used_link_leads_to_the_page_in_a_browser_that_is_logged_in(page, daemon):
    link = daemon.request("web/open")["url"]
    page.page.goto(link)
    page.wait_loaded()
    page.page.goto("about:blank")
    page.page.goto(link)
    page.page.get_by_text("This link does not work").wait_for()
    page.page.get_by_role("link", name="open the page").click()
    page.wait_loaded()
    forget_refusal(page)


@pytest.mark.exhaustive
def test_used_link_offers_nothing_in_another_browser(page, browser, daemon):
    link = daemon.request("web/open")["url"]
    page.page.goto(link)
    page.wait_loaded()
    stranger = open_page(browser, link)
    stranger.page.get_by_text("This link does not work").wait_for()
    stranger.page.wait_for_load_state("networkidle")
    assert stranger.page.get_by_role("link", name="open the page").count() == 0
    stranger.close()


def forget_refusal(page: Visitor) -> None:
    """Remove the page's one fault: chromium logs an error for the refused link."""
    (fault,) = page.faults
    assert fault.startswith(f"console: {REFUSED}")
    page.faults.clear()
