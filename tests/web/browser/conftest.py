"""Fixtures of the tests in a browser.

Chromium is started for each module rather than for all tests of a process: playwright runs an
asyncio loop in the thread of the tests, in which other tests could not run one of their own.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.support.blocking_agent import BlockingAgent, blocking_agent
from tests.support.browser import CHROMIUM, chromium
from tests.support.daemon import BlockingDaemon
from tests.web.browser.page import WebPage, open_page


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    """Run chromium."""
    if CHROMIUM is None:
        pytest.skip("chromium is not installed")
    with chromium() as running:
        yield running


@pytest.fixture
def daemon(shared: BlockingDaemon) -> Iterator[BlockingDaemon]:
    """The shared daemon, which has no terminals."""
    yield shared
    shared.clear()


@pytest.fixture
def create(daemon: BlockingDaemon) -> Callable[..., str]:
    """Return a function that creates a terminal of the user and returns its id."""
    return lambda *command, **params: str(
        daemon.info(daemon.create(*command, **params))["terminalId"]
    )


@pytest.fixture
def agent(daemon: BlockingDaemon) -> Iterator[BlockingAgent]:
    """Connect an agent."""
    with blocking_agent(daemon.socket) as connected:
        yield connected


@pytest.fixture
def visit(browser: Browser, daemon: BlockingDaemon) -> Iterator[Callable[..., WebPage]]:
    """Return a function that opens the page in a browser context of its own, logged in.

    Arguments are the route, such as `#/audit`, and options of the context. At the end of the test
    no page may have requested another host or logged an error.
    """
    pages: list[WebPage] = []

    def visit(route: str = "", **options: object) -> WebPage:
        link = daemon.request("web/open")["url"]
        pages.append(open_page(browser, link, **options))
        pages[-1].wait_loaded()
        if route:
            pages[-1].go(route)
        return pages[-1]

    yield visit
    for page in pages:
        page.close()
    for page in pages:
        page.check()


@pytest.fixture
def page(visit: Callable[..., WebPage]) -> WebPage:
    """Open the page in a window of the usual size."""
    return visit()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark all tests of this directory as long, with a time limit for a busy machine."""
    here = f"{Path(__file__).parent}/"
    for item in items:
        if str(item.path).startswith(here):  # pytest passes the tests of all directories
            item.add_marker(pytest.mark.long)
            item.add_marker(pytest.mark.timeout(180))
