"""`acpterm open`, and the HTTP server in `acpterm status`."""

import os
import re
import stat
from pathlib import Path

import pytest

from tests.support.commands import run
from tests.support.daemon import daemon
from tests.support.web import Browser


def is_private(path: str) -> bool:
    return stat.S_IMODE(os.stat(path).st_mode) == 0o600


def link_in(path: str) -> str:
    """Return the link in the HTML file at `path`, which a browser was started with."""
    return re.search(r'url=([^"]+)"', Path(path).read_text())[1]


LINK = re.compile(r"(http://127\.0\.0\.1:\d+)/login#[\w-]{43}\n")


@pytest.fixture(autouse=True)
def built(monkeypatch):
    """The page is there, as after `make page`."""
    monkeypatch.setattr("acpterm.runtime.extras.page_is_built", lambda: True)


@pytest.fixture
def browser_script(tmp_path):
    """Return the path of a browser that writes its arguments to a file, and the file's path."""
    path, seen = tmp_path / "browser", tmp_path / "seen"
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" >> {seen}\n')
    path.chmod(0o755)
    return path, seen


async def test_open_prints_a_link_that_logs_in_once(tmp_path):
    async with daemon(tmp_path) as running:
        status, out, err = await run(running.path, "open", "--no-browser")
        assert (status, err) == (0, "")
        found = LINK.fullmatch(out)
        assert found is not None, out
        browser = Browser(found[1])
        assert (await browser.log_in(out.strip())).status == 200
        assert (await Browser(found[1]).log_in(out.strip())).status == 403
        shown = (await run(running.path, "status")).out
        assert re.search(rf"^page +{found[1]}$", shown, re.MULTILINE)
        token_file = re.search(r"^HTTP token +(.*)$", shown, re.MULTILINE)
        assert is_private(token_file[1])


@pytest.mark.parametrize("words", [("open",), ("share", "web")])
async def test_open_and_share_say_how_to_build_a_page_that_was_not_built(
    tmp_path, monkeypatch, words
):
    monkeypatch.setattr("acpterm.runtime.extras.page_is_built", lambda: False)
    found = await run(str(tmp_path / "agent.sock"), *words)
    assert (found.status, found.out) == (1, "")
    assert found.err.startswith("acpterm: the page was not built: run `make page` in a clone")


@pytest.mark.long
async def test_open_without_a_display_prints_the_link(tmp_path):
    async with daemon(tmp_path) as running:
        found = await run(running.path, "open", DISPLAY="", WAYLAND_DISPLAY="")
        assert LINK.fullmatch(found.out)


@pytest.mark.long
async def test_open_starts_a_browser_whose_arguments_do_not_contain_the_token(
    tmp_path, browser_script
):
    script, seen = browser_script
    async with daemon(tmp_path) as running:
        browser = {"DISPLAY": ":99", "BROWSER": f"{script} %s"}
        status, out, _ = await run(running.path, "open", **browser)
        assert status == 0
        assert out.startswith("opened the page in a browser; it is at 127.0.0.1:")
        assert "#" not in seen.read_text()
        path = seen.read_text().strip().removeprefix("file://")
        assert is_private(path)
        link = link_in(path)
        assert (await Browser(link.partition("/login")[0]).log_in(link)).status == 200


@pytest.mark.long
async def test_open_reports_why_the_server_does_not_start(tmp_path):
    async with daemon(tmp_path) as running:
        status, out, err = await run(running.path, "open", "--http", "0.0.0.0:0")
        assert (status, out) == (1, "")
        assert "http_remote" in err
        status = (await run(running.path, "status")).out
        assert re.search(r"^page +not served: 0\.0\.0\.0:0 can be reached", status, re.MULTILINE)
