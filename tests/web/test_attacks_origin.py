"""Attacks by pages of other sites: their Origin, and names for this machine (DNS rebinding)."""

import pytest

from tests.support.attacks import (
    FOR_PROGRAMS,
    PAGES,
    POSTS,
    WEBSOCKETS,
    accesses,
    daemon_in_a_thread,
    raw_status,
    replaced,
    statuses,
    with_key,
    without,
)
from tests.support.cases import each_case

ALL = (*WEBSOCKETS, *POSTS)


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with daemon_in_a_thread(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture
def port(web):
    return int(web.origin.rpartition(":")[2])


async def test_own_page_and_programs_are_served(web):
    """With the right headers nothing is refused, so that the other tests mean something."""
    browser, client = await web.browser(), web.api_client()
    found = await statuses(browser, with_key(browser), ("/user", "/ws", "/access", "/pty/spawn"))
    assert found == {"/user": 101, "/ws": 101, "/access": 200, "/pty/spawn": 200}
    found = await statuses(client, client.headers)
    assert {path: found[path] for path in WEBSOCKETS} == dict.fromkeys(WEBSOCKETS, 101)
    # It is no message of MCP.
    assert (found["/mcp"], found["/pty/spawn"]) == (400, 200)


@pytest.mark.costly
@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:{port}.evil.example",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "http://localhost",
        "file://",
        "http://127.0.0.1:{port} http://evil.example",
    ],
)
async def test_foreign_origin_is_refused_on_every_path_with_every_access(web, port, origin):
    for browser, headers in await accesses(web):
        found = await statuses(browser, replaced(headers, "Origin", origin.format(port=port)))
        assert found == dict.fromkeys(ALL, 403)


@pytest.mark.parametrize("origin", ["null", ""])
async def test_null_origin_is_refused_on_every_path_with_every_access(web, origin):
    """A sandboxed frame, a `data:` page and a redirect between sites send it."""
    for browser, headers in await accesses(web):
        found = await statuses(browser, replaced(headers, "Origin", origin))
        assert found == dict.fromkeys(ALL, 403)


async def test_missing_origin_is_refused_on_every_path_with_a_cookie(web):
    browser = await web.browser()
    found = await statuses(browser, without(with_key(browser), "Origin"))
    assert found.pop("/login") == 403
    assert found == dict.fromkeys(set(ALL) - {"/login"}, 401)


async def test_second_origin_is_refused_on_every_path_with_every_access(web):
    for browser, headers in await accesses(web):
        for first, second in (
            (web.origin, "http://evil.example"),
            ("http://evil.example", web.origin),
        ):
            both = [*without(headers, "Origin"), ("Origin", first), ("Origin", second)]
            assert await statuses(browser, both) == dict.fromkeys(ALL, 403)


async def test_foreign_origin_does_not_use_up_a_link(web):
    link, browser = await web.link(), web.stranger()
    body = {"token": link.partition("#")[2], "key": browser.key}
    headers = replaced(browser.headers, "Origin", "http://evil.example")
    reply = await browser.request("/login", body, headers=headers)
    assert (reply.status, reply.headers.get("set-cookie")) == (403, None)
    assert (await browser.log_in(link)).status == 200


HOSTS = [
    "evil.example:{port}",
    "evil.example",
    "127.0.0.1:1",
    "127.0.0.1",
    "localhost",
    "localhost.:{port}",
    "127.0.0.1.:{port}",
    "127.0.0.1:{port}.",
    "LOCALHOST:{port}",
    "0.0.0.0:{port}",
    "[::1]:{port}",
    "[::ffff:127.0.0.1]:{port}",
    "127.1:{port}",
    "2130706433:{port}",
    "127.0.0.1:0{port}",
    "user@127.0.0.1:{port}",
    "127.0.0.1:{port}@evil.example",
    "127.0.0.1:{port},evil.example",
    "",
]


@each_case("host", HOSTS)
async def test_wrong_host_is_refused_on_every_path_with_every_access(web, port, host):
    host = host.format(port=port)
    for browser, headers in await accesses(web):
        found = await statuses(browser, replaced(headers, "Host", host))
        assert found == dict.fromkeys(ALL, 421)


@each_case("host", HOSTS)
async def test_page_is_not_served_under_a_wrong_host(web, port, host):
    for path in (*PAGES, "/assets/js/main.js", "/nothing"):
        reply = await web.stranger().request(path, headers=[("Host", host.format(port=port))])
        assert reply.status == 421, path


async def test_rebound_name_is_refused_although_its_origin_agrees(web, port):
    """The attacker's name now resolves to this machine: the page's Host and Origin both have it."""
    host = f"evil.example:{port}"
    for browser, headers in await accesses(web):
        both = replaced(replaced(headers, "Host", host), "Origin", f"http://{host}")
        assert await statuses(browser, both) == dict.fromkeys(ALL, 421)


async def test_second_host_is_refused(web, port):
    browser = await web.browser()
    right, wrong = f"Host: 127.0.0.1:{port}", f"Host: evil.example:{port}"
    rest = [f"{name}: {value}" for name, value in without(with_key(browser), "Host")]
    for hosts in ((right, wrong), (wrong, right), (right, right)):
        status = await raw_status(browser, "POST /access HTTP/1.1", *hosts, *rest)
        assert status in (400, 421), hosts
    assert await raw_status(browser, "POST /access HTTP/1.1", right, *rest) == 200


async def test_request_without_a_host_is_refused(web):
    browser = await web.browser()
    rest = [f"{name}: {value}" for name, value in without(with_key(browser), "Host")]
    for version in ("1.0", "1.1"):
        status = await raw_status(browser, f"POST /access HTTP/{version}", *rest)
        assert status in (400, 421), version


@each_case(
    "target", ["http://evil.example{path}", "http://127.0.0.1:{port}{path}", "//evil.example{path}"]
)
async def test_absolute_request_target_is_refused(web, port, target):
    for browser, headers in await accesses(web):
        lines = [f"{name}: {value}" for name, value in headers]
        for path in ("/", "/access", "/mcp"):
            method = "GET" if path == "/" else "POST"
            line = f"{method} {target.format(port=port, path=path)} HTTP/1.1"
            assert await raw_status(browser, line, *lines) in (400, 404, 421), line


async def test_form_of_another_page_is_refused(web):
    """A form needs no permission of the server, and sends cookies; but not the key."""
    browser = await web.browser()
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data"):
        headers = [*browser.headers, ("Content-Type", kind)]
        found = await statuses(
            browser, headers, ("/logout", "/access", "/pty/spawn", *FOR_PROGRAMS)
        )
        assert set(found.values()) == {401}
