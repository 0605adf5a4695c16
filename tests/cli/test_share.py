"""`acpterm share`, `shares` and `unshare`."""

import json
import os

import pytest

from tests.support.agent import agent_at
from tests.support.commands import completions, run
from tests.support.polling import poll_blocking
from tests.support.user import user_at
from tests.support.web import web_daemon


@pytest.fixture(autouse=True)
def built(monkeypatch):
    """The page is there, as after `make page`."""
    monkeypatch.setattr("acpterm.runtime.extras.page_is_built", lambda: True)


@pytest.fixture
async def web(tmp_path):
    async with web_daemon(tmp_path) as web:
        yield web


@pytest.fixture
async def path(web):
    async with user_at(web.daemon.user_path) as user:
        await user.request("terminal/create", {"command": "sleep 1000", "name": "web"})
    return web.daemon.path


@pytest.mark.long
async def test_share_prints_a_link_that_shares_lists_and_unshare_ends(web, path):
    done = await run(path, "share", "web")
    assert (done.status, done.err) == (0, "")
    url = done.out.strip()
    assert url.startswith(f"{web.origin}/share#")
    guest = web.stranger()
    assert (await guest.log_in(url)).json()["write"] is False
    lines = (await run(path, "shares")).out.splitlines()
    header, row = (line.split() for line in lines)
    assert header == ["ID", "TERMINAL", "ACCESS", "AGE", "LEFT", "PAGES"]
    assert (row[1:3], row[5]) == (["web", "read"], "0")
    assert row[4] in ("59m", "1h", "1h0m")
    assert await run(path, "unshare", row[0]) == (0, "", "")
    assert (await guest.log_in(url)).status == 403
    assert (await run(path, "shares")).out.split() == header
    done = await run(path, "unshare", row[0])
    assert (done.status, done.out) == (1, "")
    assert f"there is no share '{row[0]}'" in done.err


async def test_share_with_write_and_time_is_listed_as_json(path):
    assert (await run(path, "share", "--write", "--for", "2d", "@last")).status == 0
    (share,) = json.loads((await run(path, "shares", "--json")).out)
    assert (share["write"], share["endsAt"] - share["createdAt"]) == (True, 2 * 86400 * 1000)
    assert "url" not in share


@pytest.mark.parametrize("span", ["0s", "", "x", "-1h", "1.5h", "1²d", "\u0661d"])
async def test_share_for_an_impossible_time_is_a_usage_error(tmp_path, span):
    done = await run(str(tmp_path / "run" / "agent.sock"), "share", f"--for={span}", "web")
    assert done.status == 2
    assert "is no span of time: give 90s, 5m, 1h30m or 2d, at most 30d" in done.err


@pytest.mark.parametrize("span", ["31d", "721h", "9" * 30 + "d"])
async def test_share_for_too_long_says_the_maximum(tmp_path, span):
    done = await run(str(tmp_path / "run" / "agent.sock"), "share", f"--for={span}", "web")
    assert done.status == 2
    assert f"'{span}' is too long: at most 30d" in done.err


@pytest.mark.long
async def test_share_of_what_cannot_be_shared_fails_with_the_reason(path):
    done = await run(path, "share", "none")
    assert (done.status, done.out) == (1, "")
    assert "there is no terminal 'none'" in done.err
    async with agent_at(path) as agent:
        terminal = await agent.create("sleep 1000")
        done = await run(path, "share", "--write", terminal)
    assert (done.status, done.out) == (1, "")
    assert "acpterm promote" in done.err


async def test_shares_without_a_daemon_are_none(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    os.mkdir(tmp_path / "run", 0o700)
    assert (await run(path, "shares", "--json")).out == "[]\n"
    done = await run(path, "share", "web")
    assert (done.status, done.out) == (1, "")
    assert "no daemon listens" in done.err


@pytest.mark.long
async def test_ids_of_shares_are_completed(path):
    for _ in range(2):
        await run(path, "share", "web")
    shares = json.loads((await run(path, "shares", "--json")).out)
    first, second = (share["shareId"] for share in shares)

    words = ("acpterm", "unshare")
    assert poll_blocking(lambda: completions(path, *words, "")) == [first, second]
    assert poll_blocking(lambda: completions(path, *words, first, "sh")) == [second]
