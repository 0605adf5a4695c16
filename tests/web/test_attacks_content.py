"""Attacks by what a program prints and what an agent calls itself, and by paths and files.

What the page does with it is tested in a browser; these tests are about what the server sends.
"""

import base64
import json
import re
from pathlib import Path
from urllib.parse import quote

import pytest
import trio

from acpterm.jsonrpc import INVALID_PARAMS, RpcError
from acpterm.web.pages import DIRECTORY
from tests.support.attacks import (
    PAGES,
    POSTS,
    accesses,
    create,
    daemon_in_a_thread,
    owner_of,
    raw_status,
    replaced,
)
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.web import RefusedError

HTML = "<img src=x onerror=alert(1)>"
BIDI = "\u202e\u2066\u200f"


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with daemon_in_a_thread(tmp_path_factory.mktemp("daemon"), profile="open") as running:
        yield running


@pytest.fixture
async def owner(web):
    async with owner_of(web) as user:
        yield user


async def attached_to(browser, terminal, text):
    """Attach as the page does, until the window was sent `text`; return what it was sent."""
    async with browser.user() as user:
        _, token = await user.open("terminal/attach", terminalId=terminal, cols=120, rows=40)
        shown = ""
        with trio.fail_after(DEADLINE_S):
            while text not in shown:
                await trio.sleep(0.01)
                shown = b"".join(
                    base64.b64decode(message["params"].get("data", ""))
                    for message in user.by_token[token]
                ).decode(errors="replace")
    return shown


async def pool_output(browser, terminal, text):
    """Attach as a client of the pool, until it was sent `text`; return what it was sent."""
    async with browser.websocket("/ws") as socket:
        await socket.send_json({"type": "pty:attach", "id": terminal})
        shown = ""
        while text not in shown:
            message = await socket.receive_json()
            shown += message.get("history", "") + message.get("data", "")
    return shown


CLIPBOARD_WRITE = re.compile("(?:\x1b\\]|\x9d)0*52;")
CLIPBOARD = [
    "\\033]52;c;ZXZpbA==\\a",
    "\\033]52;c;ZXZpbA==\\033\\\\",
    "\\033]52;;ZXZpbA==\\a",
    "\\033]52;c;?\\a",
    "\\033]052;c;ZXZpbA==\\a",
    "\\302\\23552;c;ZXZpbA==\\a",
]


@pytest.mark.costly
@pytest.mark.parametrize("sequence", CLIPBOARD)
async def test_clipboard_sequence_is_not_sent_to_a_page(web, owner, sequence):
    browser = await web.browser()
    command = f"read x; printf 'A{sequence}B\\n'; read x; printf 'live{sequence}end\\n'; cat"
    terminal = await create(owner, command)
    await owner.terminal_request("write", terminal, data="\n")
    for shown in (
        await attached_to(browser, terminal, "B"),
        await pool_output(browser, terminal, "B"),
    ):
        assert not CLIPBOARD_WRITE.search(shown)
    async with trio.open_nursery() as nursery:
        found = []

        async def watch(watching):
            found.append(await watching(browser, terminal, "end"))

        nursery.start_soon(watch, attached_to)
        nursery.start_soon(watch, pool_output)
        await trio.sleep(0.3)
        await owner.terminal_request("write", terminal, data="\n")
    for shown in found:
        assert not CLIPBOARD_WRITE.search(shown)


async def test_link_with_a_script_is_text_of_the_terminal_and_nothing_else(web, owner):
    """The bytes are sent, since the page's terminal decides which links it opens."""
    browser = await web.browser()
    link = "\\033]8;;javascript:alert(1)\\033\\\\click\\033]8;;\\033\\\\"
    terminal = await create(owner, f"printf '{link}\\n'; exec cat")
    await attached_to(browser, terminal, "click")
    async with browser.user() as user:
        for method in ("get", "screen", "output"):
            found = await user.terminal_request(method, terminal)
            found.pop("command", None)
            (found.get("terminal") or {}).pop("command", None)
            assert "javascript:" not in json.dumps(found), method


async def test_title_with_html_is_sent_as_a_title(web, owner):
    browser = await web.browser()
    terminal = await create(owner, f"printf '\\033]2;{HTML}\\a'; echo done; exec cat")
    shown = await attached_to(browser, terminal, "done")
    assert HTML not in re.sub(f"\x1b]2;{re.escape(HTML)}(?:\x1b\\\\|\a)", "", shown)


async def test_responses_with_names_and_commands_are_json_and_never_html(web):
    browser = await web.browser()
    body = {"command": ["sh", "-c", f"true {HTML}"], "name": HTML, "cwd": f"/{HTML}"}
    for found in (
        await browser.request("/pty/spawn", body),
        await browser.request("/pty/spawn", {"command": [HTML]}),
        await browser.request("/pty/spawn", {HTML: HTML}),
    ):
        assert found.headers["content-type"] == "application/json"
        assert found.headers["x-content-type-options"] == "nosniff"


async def test_no_response_repeats_markup_of_a_request(web):
    marked = quote(HTML)
    for browser, headers in [*await accesses(web), (web.stranger(), web.stranger().headers)]:
        for path in (f"/{marked}", f"/assets/{marked}", f"/mcp/{marked}", f"/login/{marked}"):
            for method in ("GET", "POST"):
                reply = await browser.request(path, method=method, headers=headers)
                assert "html" not in reply.headers.get("content-type", ""), path
                assert HTML not in reply.text
        for name in ("Host", "Origin", "Authorization", "Cookie", "User-Agent", "Referer"):
            reply = await browser.request("/access", {}, headers=replaced(headers, name, HTML))
            assert HTML not in reply.text
        for token in (HTML, BIDI):
            reply = await browser.request("/login", {"token": token, "key": token})
            assert token not in reply.text
            assert "html" not in reply.headers["content-type"]


@each_case("name", [f"build{BIDI}gnp.exe", "a\u200bb", "a\x1b[31m", "a\nb", BIDI])
async def test_name_with_invisible_characters_is_refused(web, owner, name):
    terminal = await create(owner, "cat")
    browser = await web.browser()
    async with browser.user() as user:
        with pytest.raises(RpcError) as refused:
            await user.terminal_request("rename", terminal, name=name)
        assert refused.value.code == INVALID_PARAMS
        with pytest.raises(RpcError):
            await user.request("terminal/create", {"command": "true", "name": name})
    async with web.daemon.agent() as (agent, _):
        with pytest.raises(RpcError):
            await agent.request(
                "terminal/create",
                {
                    "sessionId": "s",
                    "command": "true",
                    "_meta": {"acpterm": {"name": name}},
                },
            )


PATHS = [
    *PAGES,
    *POSTS,
    "/assets/js/main.js",
    "/assets/nothing",
    "/nothing",
    "/favicon.ico",
    "/.well-known/oauth-protected-resource",
]
METHODS = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")


@pytest.mark.costly
@pytest.mark.parametrize("path", PATHS)
async def test_no_response_has_a_cors_header(web, path):
    preflight = [
        ("Access-Control-Request-Method", "POST"),
        ("Access-Control-Request-Headers", "authorization"),
        ("Access-Control-Request-Private-Network", "true"),
    ]
    for browser, headers in [*await accesses(web), (web.stranger(), web.stranger().headers)]:
        for origin in ("http://evil.example", "null", web.origin):
            for method in METHODS:
                sent = [*replaced(headers, "Origin", origin), *preflight]
                reply = await browser.request(path, method=method, headers=sent)
                found = [name for name in reply.headers if name.startswith("access-control-")]
                assert not found, (method, origin)
                assert "timing-allow-origin" not in reply.headers


@pytest.mark.costly
@pytest.mark.parametrize("path", PATHS)
async def test_every_response_has_the_policy_of_the_page(web, path):
    for browser, headers in [*await accesses(web), (web.stranger(), [("Host", "evil.example")])]:
        for method in METHODS:
            reply = await browser.request(path, method=method, headers=headers)
            policy = dict(
                part.split(" ", 1) for part in reply.headers["content-security-policy"].split("; ")
            )
            assert policy["default-src"] == "'none'"
            assert policy["script-src"] == policy["connect-src"] == "'self'"
            assert policy["frame-ancestors"] == policy["base-uri"] == "'none'"
            assert "unsafe" not in reply.headers["content-security-policy"]
            assert reply.headers["x-frame-options"] == "DENY"
            assert reply.headers["x-content-type-options"] == "nosniff"
            assert reply.headers["referrer-policy"] == "no-referrer"
            assert reply.headers["cross-origin-resource-policy"] == "same-origin"


@each_case("path", ["/user", "/ws", "/acp"])
async def test_websocket_path_without_an_upgrade_reveals_nothing(web, path):
    for browser, headers in await accesses(web):
        for method in METHODS:
            reply = await browser.request(path, method=method, headers=headers)
            assert reply.status in (404, 405), method
            assert "content-security-policy" in reply.headers


TRAVERSALS = [
    "../{up}",
    "..%2f{up}",
    "%2e%2e/{up}",
    "%2e%2e%2f{up}",
    "..%5c{up}",
    "....//{up}",
    "%252e%252e%252f{up}",
    "js/../../{up}",
    "js/%2e%2e/%2e%2e/{up}",
    "/{absolute}",
    "%2f{absolute}",
    "/%2f{absolute}",
    "{absolute}",
    "js/main.js%00.png",
    "..%c0%af{up}",
]


@each_case("path", TRAVERSALS)
async def test_no_file_outside_of_the_page_is_served(web, path):
    target = Path(DIRECTORY).parent / "app.py"
    assert target.exists()
    absolute = str(target).removeprefix("/")
    for up in ("app.py", "../app.py", "../web/app.py", "../../acpterm/web/app.py"):
        sent = f"/assets/{path.format(up=up, absolute=absolute)}"
        lines = [f"Host: {web.stranger().host}"]
        assert await raw_status(web.stranger(), f"GET {sent} HTTP/1.1", *lines) in (400, 404), sent
        reply = await web.stranger().request(sent, headers=[("Host", web.stranger().host)])
        assert b"make_app" not in reply.body


async def test_private_files_of_the_server_are_not_served(web):
    token = web.token_file
    assert token.stat().st_mode & 0o777 == 0o600
    assert token.parent.stat().st_mode & 0o077 == 0
    for name in (token.name, "access.json", "__init__.py", "../pages.py", ".gitignore"):
        reply = await web.stranger().request(
            f"/assets/{name}", headers=[("Host", web.stranger().host)]
        )
        assert reply.status == 404, name


def test_no_file_of_the_page_is_a_link_that_leads_out_of_it():
    for file in Path(DIRECTORY).rglob("*"):
        assert file.resolve().is_relative_to(Path(DIRECTORY).resolve()), file


async def test_request_smuggling_is_refused(web):
    """Two lengths, or a length and chunks: a proxy and the server could disagree on the end."""
    host = f"Host: {web.stranger().host}"
    both = ["Content-Length: 6", "Transfer-Encoding: chunked"]
    two = ["Content-Length: 6", "Content-Length: 7"]
    odd = ["Transfer-Encoding: chunked, identity"]
    for lines in (both, two, odd, ["Content-Length: +6"], ["Content-Length: 6,7"]):
        for browser, headers in await accesses(web):
            sent = [f"{name}: {value}" for name, value in headers if name != "Host"]
            status = await raw_status(
                browser, "POST /access HTTP/1.1", host, *sent, *lines, body=b"0\r\n\r\nGET "
            )
            assert status in (0, 400, 501) or lines is both, lines


async def test_header_injection_is_refused(web):
    host = f"Host: {web.stranger().host}"
    for line in ("X-A: 1\rX-B: 2", "X-A: 1\x00", "X A: 1", ": 1", " folded"):
        assert await raw_status(web.stranger(), "GET /nothing HTTP/1.1", host, line) in (
            0,
            400,
            421,
        )


async def test_agent_that_is_named_like_markup_is_sent_as_json(web, owner):
    async with web.daemon.agent() as (agent, _):
        await agent.request(
            "initialize",
            {"protocolVersion": 1, "clientInfo": {"name": f"{HTML}{BIDI}", "version": "1"}},
        )
        await agent.create("cat")
        browser = await web.browser()
        async with browser.websocket("/user") as socket:
            request = {"jsonrpc": "2.0", "id": 1, "method": "_acpterm/terminal/list", "params": {}}
            await socket.send_json(request)
            found = await socket.receive_json()
    assert f"{HTML}{BIDI}" in json.dumps(found, ensure_ascii=False)


@pytest.mark.long
async def test_refused_websocket_says_why_in_plain_text(web):
    with pytest.raises(RefusedError) as refused:
        async with web.stranger().websocket("/user"):
            pass
    assert refused.value.status == 401
