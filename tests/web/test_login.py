"""`/login`, `/logout` and `/access`."""

import pytest

from tests.support.cases import each_case
from tests.support.web import refused_status, web_here


@pytest.fixture
async def web(tmp_path):
    async with web_here(tmp_path) as web:
        yield web


async def test_login_sets_a_strict_cookie_that_scripts_cannot_read(web):
    browser = web.stranger()
    reply = await browser.log_in(await web.link())
    assert (reply.status, reply.json()) == (200, {"access": "user"})
    name = f"acpterm-{web.endpoint.address.port}"
    value, *attributes = reply.headers["set-cookie"].split("; ")
    assert value.startswith(f"{name}=")
    assert sorted(attributes) == ["HttpOnly", "Max-Age=2591999", "Path=/", "SameSite=strict"]
    assert browser.key not in str(reply)


async def test_login_of_an_https_origin_sets_a_secure_cookie(tmp_path):
    origin = "https://terminals.example.org"
    async with web_here(tmp_path, http_origins=[origin]) as web:
        browser = web.stranger()
        link = await web.link()
        headers = [("Host", "terminals.example.org"), ("Origin", origin)]
        body = {"token": link.partition("#")[2], "key": browser.key}
        reply = await browser.request("/login", body, headers=headers)
        assert reply.status == 200
        assert "Secure" in reply.headers["set-cookie"].split("; ")


async def test_replayed_link_is_refused(web):
    link = await web.link()
    assert (await web.stranger().log_in(link)).status == 200
    browser = web.stranger()
    reply = await browser.log_in(link)
    assert (reply.status, browser.cookie) == (403, None)
    assert "acpterm open" in reply.text


async def test_login_without_an_origin_is_refused_and_keeps_the_link(web):
    link = await web.link()
    browser = web.stranger()
    body = {"token": link.partition("#")[2], "key": browser.key}
    reply = await browser.request("/login", body, headers=[("Host", browser.host)])
    assert reply.status == 403
    assert (await browser.log_in(link)).status == 200


@each_case("body", [None, [], {}, {"token": "x"}, {"token": 1, "key": 2}, "x" * 9999])
async def test_login_refuses_another_body(web, body):
    assert (await web.stranger().request("/login", body, method="POST")).status == 400


@each_case("length", [0, 31, 129])
async def test_login_refuses_a_key_of_a_wrong_length_and_says_so(web, length):
    link, browser = await web.link(), web.stranger()
    body = {"token": link.partition("#")[2], "key": "k" * length}
    reply = await browser.request("/login", body)
    assert (reply.status, "32 to 128 characters" in reply.text) == (400, True)
    assert (await browser.log_in(link)).status == 200


async def test_access_says_what_the_login_may_use(web):
    assert (await (await web.browser()).request("/access", {})).json() == {"access": "user"}
    assert (await web.api_client().request("/access", {})).json() == {"access": "user"}
    found = (await (await web.guest("term_1", write=True)).request("/access", {})).json()
    assert found.pop("endsAt") > 1e12
    assert found == {"access": "share", "terminalId": "term_1", "write": True}


async def test_logout_ends_the_login_and_closes_its_websockets(web):
    browser, other = await web.browser(), await web.browser()
    async with browser.websocket("/user") as websocket, other.user() as user:
        assert (await browser.request("/logout", {})).status == 204
        assert await websocket.wait_closed() == 1008
        assert await user.list() == []
    browser.cookie = None
    assert await refused_status(browser.websocket("/user")) == 401


async def test_login_of_a_share_leaves_that_of_the_user_in_the_same_browser(web):
    browser, guest = await web.browser(), await web.guest("term_1")
    assert browser.cookie.partition("=")[0] != guest.cookie.partition("=")[0]
    browser.cookie = guest.cookie = f"{browser.cookie}; {guest.cookie}"
    assert (await browser.request("/access", {})).json()["access"] == "user"
    assert (await guest.request("/access", {})).json()["access"] == "share"
    both = browser.cookie
    assert (await guest.request("/logout", {})).status == 204
    assert guest.cookie.startswith("acpterm-share-")
    guest.cookie = both
    assert (await guest.request("/access", {})).status == 401
    assert (await browser.request("/access", {})).json()["access"] == "user"


async def test_logout_of_the_user_leaves_a_share_in_the_same_browser(web):
    browser, guest = await web.browser(), await web.guest("term_1")
    both = browser.cookie = guest.cookie = f"{browser.cookie}; {guest.cookie}"
    assert (await browser.request("/logout", {})).status == 204
    assert browser.cookie.partition("=")[0] == f"acpterm-{web.endpoint.address.port}"
    browser.cookie = both
    assert (await browser.request("/access", {})).status == 401
    assert (await guest.request("/access", {})).json()["access"] == "share"


async def test_no_response_gives_out_a_token(web):
    browser = await web.browser()
    token = web.token_file.read_text().strip()
    async with browser.websocket("/user") as websocket:
        for number, method in enumerate(("_acpterm/web/status", "_acpterm/status")):
            request = {"jsonrpc": "2.0", "id": number, "method": method, "params": {}}
            await websocket.send_json(request)
            assert token not in await websocket.receive_frame()
    for path in ("/", "/access", "/login"):
        assert token not in str(await browser.request(path, {}, method="POST"))
