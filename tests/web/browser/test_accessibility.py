"""No view has a serious fault of accessibility, light and dark, wide and on a phone."""

import pytest

from tests.web.browser.axe import faults

PHONE = {"width": 360, "height": 740}


@pytest.fixture(params=["light", "dark", "phone"])
def shown(request, visit):
    if request.param == "phone":
        return visit(viewport=PHONE)
    return visit(color_scheme=request.param)


def test_list(shown, daemon, agent):
    agent.create("sh", "-c", "read x")
    agent.create("sleep", "1000")
    daemon.create("sh", "-c", "exit 3")
    shown.row("waits for input").wait_for()
    shown.row("exited 3").wait_for()
    assert not faults(shown)


def test_empty_list(shown):
    shown.page.get_by_text("No terminals").wait_for()
    assert not faults(shown)


def test_shortcuts(shown):
    shown.page.get_by_text("No terminals").wait_for()
    shown.press("?")
    shown.page.get_by_role("dialog").wait_for()
    assert not faults(shown)
