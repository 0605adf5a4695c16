"""The page in chromium: time until output is displayed, cost of idle pages, and bytes of a load.

The baseline of the output is a page with the same xterm.js and a bare WebSocket to `echo_server`,
which sends the same bytes back. Both times are from a key press to the frame after which the last
line is on the screen.
"""

import contextlib
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Browser, Page, sync_playwright

import acpterm.web
from benchmarks.client import Client
from benchmarks.figure import Figure, below, compare, p50
from benchmarks.processes import Daemon, cpu_time, lines

_VENDOR = Path(acpterm.web.__file__).parent / "page" / "vendor"
_MIB = 1 << 20
_END = "the last line"
_PAGES = 50
_KB = 1000

# Measures from the next key press until the last line is on the screen.
_MEASURE = """end => {
  window.measured = new Promise(resolve => {
    let start;
    const rows = document.querySelector(".xterm-rows");
    const look = () => {
      if (rows.textContent.includes(end)) resolve(performance.now() - start);
      else requestAnimationFrame(look);
    };
    const begin = () => { start = performance.now(); requestAnimationFrame(look); };
    addEventListener("keydown", begin, { capture: true, once: true });
  });
}"""


def measure(*, quick: bool) -> list[Figure]:
    with _chromium() as browser:
        return [
            _output(browser, rounds=2 if quick else 15),
            _idle(browser, 5 if quick else _PAGES, seconds=3 if quick else 20),
            _weight(browser),
        ]


@contextlib.contextmanager
def _chromium() -> Iterator[Browser]:
    arguments = ["--no-sandbox"] if os.geteuid() == 0 else []
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), args=arguments
        )
        yield browser
        browser.close()


def _output(browser: Browser, rounds: int) -> Figure:
    taken: list[float] = []
    bare: list[float] = []
    with lines(_MIB) as file, Daemon() as daemon, _echo_server() as port:
        for _ in range(rounds + 1):
            milliseconds, size = _page_ms(browser, daemon, file)
            taken.append(milliseconds)
            bare.append(_bare_ms(browser, port, file, size))
    # The first round fills the caches of chromium.
    taken, bare = taken[1:], bare[1:]
    name = "1 MiB of output to the screen of the page, p50 (baseline: a bare WebSocket echo)"
    return compare(
        name, "ms", p50(taken), p50(bare), at_most=1.5, rounds=taken, baseline_rounds=bare
    )


def _page_ms(browser: Browser, daemon: Daemon, file: str) -> tuple[float, tuple[int, int]]:
    """Return the milliseconds until the page shows the output of `cat FILE`.

    Also return the size of the page's terminal, in columns and rows.
    """
    client = Client(daemon.user_socket)
    script = f"read go; cat {file}; printf '{_END[:3]}'; printf '{_END[3:]}'; read go"
    created = client.ask("_acpterm/terminal/create", {"command": "sh", "args": ["-c", script]})
    terminal = {"terminalId": created["terminalId"]}
    context = browser.new_context()
    page = context.new_page()
    page.goto(_link(client))
    # Wait for the login, which the next page needs.
    page.get_by_role("heading", name="Terminals", exact=True).wait_for()
    page.goto(f"{_origin(page)}/#/terminal/{created['terminalId']}")
    page.locator(".xterm-helper-textarea").focus()
    page.wait_for_function("document.querySelector('.xterm-rows')?.childElementCount > 0")
    milliseconds = _measured_ms(page)
    info = client.ask("_acpterm/terminal/get", terminal)
    context.close()
    client.ask("_acpterm/terminal/kill", terminal)
    client.ask("_acpterm/terminal/release", terminal)
    client.close()
    return milliseconds, (info["cols"], info["rows"])


def _bare_ms(browser: Browser, port: int, file: str, size: tuple[int, int]) -> float:
    """Return the milliseconds until the bare page shows the bytes of the file.

    `size` is the size of its terminal in columns and rows.
    """
    context = browser.new_context()
    page = context.new_page()
    page.goto(f"http://127.0.0.1:{port}/")
    page.wait_for_function("'begin' in window")
    # A PTY's ONLCR makes the same change.
    text = Path(file).read_text().replace("\n", "\r\n") + _END
    page.evaluate("arguments => window.begin(...arguments)", [*size, text])
    milliseconds = _measured_ms(page)
    context.close()
    return milliseconds


def _measured_ms(page: Page) -> float:
    page.evaluate(_MEASURE, _END)
    page.keyboard.press("Enter")
    return float(page.evaluate("window.measured"))


@contextlib.contextmanager
def _echo_server() -> Iterator[int]:
    """Run `echo_server`; yield its port."""
    with subprocess.Popen(
        [sys.executable, "-m", "benchmarks.echo_server", str(_VENDOR)],
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        try:
            yield int(process.stdout.readline())
        finally:
            process.kill()


def _idle(browser: Browser, count: int, seconds: float) -> Figure:
    with Daemon() as daemon:
        client = Client(daemon.user_socket)
        for _ in range(10):
            client.ask("_acpterm/terminal/create", {"command": "sleep", "args": ["1000"]})
        context = browser.new_context()
        page = context.new_page()
        page.goto(_link(client))
        page.get_by_text("sleep 1000").first.wait_for()
        for _ in range(count - 1):
            page = context.new_page()
            page.goto(_origin(context.pages[0]))
            page.get_by_text("sleep 1000").first.wait_for()
        worker = daemon.worker()
        assert worker is not None
        # Let the requests of the last page be answered first.
        time.sleep(1)
        before, began = cpu_time(worker), time.perf_counter()
        time.sleep(seconds)
        share = 100 * (cpu_time(worker) - before) / (time.perf_counter() - began)
        context.close()
        client.close()
    return below(f"{count} idle pages: the worker's processor time", "% of a core", share, 2)


def _weight(browser: Browser) -> Figure:
    """Measure how many kB, headers included, a browser loads until the page shows a terminal."""
    with Daemon() as daemon:
        client = Client(daemon.user_socket)
        created = client.ask("_acpterm/terminal/create", {"command": "cat"})
        context = browser.new_context()
        page = context.new_page()
        sizes: dict[str, int] = {}
        page.goto(_link(client))
        page.wait_for_load_state("networkidle")
        session = context.new_cdp_session(page)
        urls: dict[str, str] = {}
        session.on(
            "Network.requestWillBeSent",
            lambda event: urls.setdefault(event["requestId"], event["request"]["url"]),
        )
        session.on(
            "Network.loadingFinished",
            lambda event: sizes.update({event["requestId"]: int(event["encodedDataLength"])}),
        )
        session.send("Network.enable")
        session.send("Network.setCacheDisabled", {"cacheDisabled": True})
        page.goto(f"{_origin(page)}/#/terminal/{created['terminalId']}")
        page.reload()
        page.locator(".xterm-rows").wait_for()
        page.wait_for_load_state("networkidle")
        detail = {urls[id_].removeprefix(_origin(page)): sizes[id_] for id_ in sizes.keys() & urls}
        context.close()
        client.close()
    name = "weight of the page with a terminal, as transferred"
    return below(name, "kB", sum(detail.values()) / _KB, 600, files=detail)


def _link(client: Client) -> str:
    return str(client.ask("_acpterm/web/open", {})["url"])


def _origin(page: Page) -> str:
    return str(page.evaluate("location.origin"))
