"""The page as a user sees it: its rows, its terminals and what they show."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from playwright.sync_api import Browser, Locator

from tests.support.browser import Visitor
from tests.support.polling import poll_blocking

DEADLINE_S = 30.0

_PASTE = """(element, text) => {
  const clipboardData = new DataTransfer();
  clipboardData.setData("text/plain", text);
  element.dispatchEvent(
    new ClipboardEvent("paste", { clipboardData, bubbles: true, cancelable: true }));
}"""


class WebPage(Visitor):
    """A page that is open in a browser context of its own."""

    def wait_loaded(self) -> None:
        """Wait until the list was read: then the page receives events and approvals."""
        self.page.locator("#list .empty:visible, #list .group").first.wait_for()

    def go(self, route: str) -> None:
        """Show another view, such as `#/audit`."""
        self.page.evaluate("route => { location.hash = route; }", route)

    def show_terminal(self, terminal: str) -> None:
        """Show a terminal, and wait until its screen is there and the page knows its state.

        Until then, the page drops what is typed.
        """
        self.go(f"#/terminal/{terminal}")
        self.screen.wait_for()
        self.view.locator(".term-state:not(:empty)").wait_for(state="attached")

    @property
    def view(self) -> Locator:
        """The view beside the list, or instead of it."""
        return self.page.locator("#view")

    def row(self, text: str) -> Locator:
        """Return the row of the list of terminals that contains `text`."""
        return self.page.locator("#list .row", has_text=text)

    @property
    def rows(self) -> list[str]:
        """The commands in the list, in order."""
        return self.page.locator("#list .row-command").all_inner_texts()

    @property
    def screen(self) -> Locator:
        """The element that draws the screen of the terminal."""
        return self.page.locator("#view .xterm-screen")

    @property
    def lines(self) -> list[str]:
        """The lines of the screen as they are drawn, without blanks at the right."""
        drawn: list[str] = self.page.locator("#view .xterm-rows > div").all_text_contents()
        return [line.replace("\xa0", " ").rstrip() for line in drawn]

    def until_drawn(self, text: str, timeout_s: float = DEADLINE_S) -> None:
        """Wait until the screen has `text` in a line."""
        self.until(lambda: any(text in line for line in self.lines), timeout_s)

    def type(self, text: str) -> None:
        """Type into the terminal."""
        self.page.locator("#view .xterm-helper-textarea").focus()
        self.page.keyboard.type(text)

    def paste(self, text: str) -> None:
        """Paste text into the terminal."""
        self.page.locator("#view .xterm-helper-textarea").evaluate(_PASTE, text)

    def press(self, key: str) -> None:
        """Press a key, named as in playwright."""
        self.page.keyboard.press(key)

    def confirm(self, action: str) -> None:
        """Press the button `action` of the dialog."""
        self.page.get_by_role("dialog").get_by_role("button", name=action, exact=True).click()

    def button(self, name: str) -> Locator:
        """Return the button with this accessible name."""
        return self.page.get_by_role("button", name=name, exact=True)

    def until(self, check: Callable[[], Any], timeout_s: float = DEADLINE_S) -> Any:
        """Poll until `check` is true. Between the polls the page's events are handled."""

        def checked() -> Any:
            value = check()
            if not value:
                self.page.wait_for_timeout(50)
            return value or None

        return poll_blocking(checked, timeout_s)


def open_page(browser: Browser, link: str, **options: Any) -> WebPage:
    """Open a link in a browser context of its own; `options` are the context's."""
    opened = WebPage(browser, urlsplit(link).netloc, **options)
    opened.page.goto(link)
    return opened
