"""Debian's chromium, driven by playwright, and visitors: each has a separate browser context.

A visitor records what a page must never do: request another host, violate its content security
policy, or let an error reach the console. `Visitor.check` fails if there was any; the fixtures of
the tests call it at the end of each test. Some errors in the console come from chromium itself, and
are no faults: a WebSocket that fails while the worker is replaced, and a login that has ended.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Page, Request, sync_playwright

from tests.support.depth import DEADLINE_S

CHROMIUM = shutil.which("chromium")
_ARGUMENTS = ["--no-sandbox"] if os.geteuid() == 0 else []
_TIMEOUT_MS = 2000 * DEADLINE_S
_EXPECTED = (
    "WebSocket connection to ",
    "Failed to load resource: the server responded with a status of 401",
)


class Visitor:
    """A browser context with one page."""

    def __init__(self, browser: Browser, address: str, **options: Any) -> None:
        self.address = address
        self.faults: list[str] = []
        self.context = browser.new_context(**options)
        self.context.set_default_timeout(_TIMEOUT_MS)
        self.context.on("request", self._on_request)
        self.context.on("console", self._on_console)
        self.context.on("weberror", lambda error: self.faults.append(f"error: {error.error}"))
        self.page: Page = self.context.new_page()

    def _on_request(self, request: Request) -> None:
        url = urlsplit(request.url)
        if url.scheme not in ("data", "blob") and url.netloc != self.address:
            self.faults.append(f"request: {request.url}")

    def _on_console(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and not message.text.startswith(_EXPECTED):
            self.faults.append(f"console: {message.text}")

    def close(self) -> None:
        """Close the page."""
        self.context.close()

    def check(self) -> None:
        """Fail if the page requested another host, or reported an error."""
        assert not self.faults, "\n".join(self.faults)


@contextmanager
def chromium() -> Iterator[Browser]:
    """Run chromium, without a window, until the end of the block."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=CHROMIUM, args=_ARGUMENTS, timeout=_TIMEOUT_MS
        )
        try:
            yield browser
        finally:
            browser.close()
