"""The checks of every request: Host, Origin, query, and access."""

import h11
import pytest
import trio

from acpterm.web import http_connection
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.web import refused_status, web_here


@pytest.fixture
async def web(tmp_path):
    async with web_here(tmp_path) as web:
        yield web


def without(headers, *names):
    return [header for header in headers if header[0] not in names]


def replaced(headers, name, value):
    return [*without(headers, name), (name, value)]


async def status_of_websocket(browser, headers, path="/user"):
    return await refused_status(browser.websocket(path, headers=headers))


async def test_page_is_served_under_each_name_of_a_loopback_address(web):
    port = web.endpoint.address.port
    for host in (f"127.0.0.1:{port}", f"localhost:{port}"):
        reply = await web.stranger().request("/nothing", headers=[("Host", host)])
        assert reply.status == 404, host


@each_case(
    "host",
    [
        "evil.example",
        "evil.example:{port}",
        "127.0.0.1",
        "127.0.0.1:1",
        "localhost",
        "127.1:{port}",
    ],
)
async def test_request_with_another_host_is_refused_on_each_path(web, host):
    host = host.format(port=web.endpoint.address.port)
    browser = await web.browser()
    headers = replaced([*browser.headers, ("X-Acpterm-Key", browser.key)], "Host", host)
    for path in ("/", "/assets/page.css"):
        assert (await browser.request(path, headers=headers)).status == 421
    for path in ("/login", "/logout", "/access"):
        assert (await browser.request(path, {}, headers=headers)).status == 421
    for path in ("/user", "/acp"):
        assert await status_of_websocket(browser, headers, path) == 421
    client = web.api_client()
    assert await status_of_websocket(client, replaced(client.headers, "Host", host)) == 421


@each_case(
    "origin",
    [
        "http://evil.example",
        "null",
        "",
        "http://127.0.0.1",
        "http://127.0.0.1:1",
        "https://127.0.0.1:{port}",
        "http://127.0.0.1:{port}/",
        "http://127.0.0.1:{port}.evil.example",
        "HTTP://127.0.0.1:{port}",
    ],
)
async def test_request_with_another_origin_is_refused_with_each_access(web, origin):
    origin = origin.format(port=web.endpoint.address.port)
    browser, client = await web.browser(), web.api_client()
    headers = replaced([*browser.headers, ("X-Acpterm-Key", browser.key)], "Origin", origin)
    assert await status_of_websocket(browser, headers) == 403
    assert (await browser.request("/access", {}, headers=headers)).status == 403
    with_token = replaced(client.headers, "Origin", origin)
    for path in ("/user", "/acp"):
        assert await status_of_websocket(client, with_token, path) == 403


async def test_cookie_without_an_origin_is_no_access(web):
    browser = await web.browser()
    headers = without([*browser.headers, ("X-Acpterm-Key", browser.key)], "Origin")
    assert await status_of_websocket(browser, headers) == 401
    assert (await browser.request("/access", {}, headers=headers)).status == 401


async def test_two_origins_or_keys_are_refused(web):
    browser = await web.browser()
    headers = [*browser.headers, ("Origin", browser.origin)]
    assert await status_of_websocket(browser, headers) == 403
    protocols = ["acpterm", f"acpterm.key.{browser.key}", f"acpterm.key.{browser.key}x"]
    assert await refused_status(browser.websocket("/user", protocols=protocols)) == 401


async def test_query_is_refused_even_with_an_access(web):
    browser, client = await web.browser(), web.api_client()
    token = web.token_file.read_text().strip()
    for one in (browser, client, web.stranger()):
        for query in (f"token={token}", "x", "v=1"):
            assert await refused_status(one.websocket(f"/user?{query}")) == 400
            assert (await one.request(f"/?{query}")).status == 400


@each_case("value", ["Bearer", "Bearer wrong", "Basic {token}", "{token}", "Bearer {token}x"])
async def test_wrong_authorization_is_refused_even_with_a_cookie(web, value):
    browser = await web.browser()
    value = value.format(token=web.token_file.read_text().strip())
    headers = [*browser.headers, ("Authorization", value)]
    assert await status_of_websocket(browser, headers) == 401


async def test_path_for_programs_refuses_a_cookie(web):
    assert await refused_status((await web.browser()).websocket("/acp")) == 401
    assert await refused_status(web.api_client().websocket("/acp")) == 101


async def test_share_is_no_access_to_the_user_api(web):
    guest = await web.guest("term_1")
    assert await refused_status(guest.websocket("/acp")) == 401
    assert (await guest.request("/access", {})).json()["access"] == "share"


async def test_no_path_but_the_page_is_served_without_an_access(web):
    stranger = web.stranger()
    for path in ("/logout", "/access"):
        assert (await stranger.request(path, {})).status == 401
    for path in ("/user", "/acp"):
        assert await refused_status(stranger.websocket(path)) == 401


async def test_http2_without_tls_is_refused(web):
    preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\x00\x00\x00\x04\x00\x00\x00\x00\x00"
    with trio.fail_after(DEADLINE_S):
        async with await web.stranger().connect() as stream:
            await stream.send_all(preface)
            received = b""
            while data := await stream.receive_some():
                received += data
    assert received.startswith(b"HTTP/1.1 ")
    assert received.split()[1] in (b"400", b"505")


async def test_upgrade_to_http2_is_ignored(web):
    headers = [("Host", web.stranger().host), ("Upgrade", "h2c"), ("HTTP2-Settings", "")]
    reply = await web.stranger().request("/nothing", headers=headers)
    assert (reply.status, reply.headers.get("upgrade")) == (404, None)


async def test_refused_request_with_a_large_body_gets_its_response(web, monkeypatch):
    monkeypatch.setattr(http_connection, "LINGER_S", DEADLINE_S)
    stranger = web.stranger()
    connection = h11.Connection(h11.CLIENT)
    head = connection.send(
        h11.Request(
            method="POST",
            target="/access",
            headers=[("Host", stranger.host), ("Content-Length", "500000")],
        )
    )
    with trio.fail_after(DEADLINE_S):
        async with await stranger.connect() as stream:
            await stream.send_all(head + b"x" * 500_000)
            assert (await stream.receive_some()).startswith(b"HTTP/1.1 401")
