"""Attacks on links, logins, shares and the token: leaked, replayed, expired, or of another user."""

import base64

import pytest
import trio

from acpterm.host.user.methods import USER_METHODS
from acpterm.jsonrpc import INVALID_PARAMS, METHOD_NOT_FOUND, RpcError
from acpterm.web.access import LINK_LIFETIME_S, LOGIN_LIFETIME_S
from tests.support.attacks import (
    POSTS,
    WEBSOCKETS,
    accesses,
    create,
    daemon_in_a_thread,
    owner_of,
    replaced,
    statuses,
    with_key,
    without,
)
from tests.support.cases import each_case
from tests.support.depth import DEADLINE_S
from tests.support.user import User, UserTerminals
from tests.support.web import Browser, WebDaemon, refused_status, web_here

ALL = (*WEBSOCKETS, *POSTS)
NOT_LOGIN = tuple(path for path in ALL if path != "/login")


@pytest.fixture(scope="module")
def web(tmp_path_factory):
    with daemon_in_a_thread(tmp_path_factory.mktemp("daemon")) as running:
        yield running


@pytest.fixture(scope="module")
def other_web(tmp_path_factory):
    with daemon_in_a_thread(tmp_path_factory.mktemp("other")) as running:
        yield running


@pytest.fixture
async def owner(web):
    async with owner_of(web) as user:
        yield user


async def share(owner: User, terminal: str, *, write: bool = False) -> dict[str, str]:
    params = {"terminalId": terminal, "write": write}
    found: dict[str, str] = await owner.request("share/create", params)
    return found


async def guest_of(web: WebDaemon, owner: User, terminal: str, *, write: bool = False) -> Browser:
    browser = web.stranger()
    reply = await browser.log_in((await share(owner, terminal, write=write))["url"])
    assert reply.status == 200
    return browser


async def text_of(owner: User, terminal: str) -> str:
    return str((await owner.terminal_request("output", terminal))["text"])


@pytest.mark.long
async def test_token_in_a_query_is_refused_on_every_path_with_every_access(web):
    token, link = web.api_client().token, await web.link()
    for query in (f"token={token}", f"access_token={token}", f"t={link.partition('#')[2]}"):
        for browser, headers in [*await accesses(web), (web.stranger(), web.stranger().headers)]:
            for path in WEBSOCKETS:
                opening = browser.websocket(f"{path}?{query}", headers=headers)
                assert await refused_status(opening) == 400
            for path in (*POSTS, "/", "/share", "/assets/js/main.js"):
                reply = await browser.request(f"{path}?{query}", headers=headers)
                assert reply.status == 400, path


async def test_token_of_another_daemon_is_refused(web, other_web):
    client = web.api_client()
    wrong = replaced(client.headers, "Authorization", f"Bearer {other_web.api_client().token}")
    assert await statuses(client, wrong) == dict.fromkeys(ALL, 401)


@each_case(
    "value",
    [
        "Bearer",
        "Bearer x",
        "Bearer {token}x",
        "Bearer {part}",
        "Basic {token}",
        "{token}",
    ],
)
async def test_wrong_token_is_refused_on_every_path(web, value):
    client = web.api_client()
    assert client.token is not None
    value = value.format(token=client.token, part=client.token[:-1])
    wrong = replaced(client.headers, "Authorization", value)
    assert await statuses(client, wrong) == dict.fromkeys(ALL, 401)


async def test_token_of_the_agents_opens_nothing_of_the_user(web):
    """An agent has it in its settings: it must not answer its own questions as the user."""
    agent = web.agent()
    found = await statuses(agent, agent.headers)
    assert found.pop("/acp") == 101
    assert {found.pop(path) for path in ("/mcp", "/mcp/pool")} == {400}
    assert found.pop("/login") == 403
    assert found == dict.fromkeys(set(ALL) - {"/acp", "/mcp", "/mcp/pool", "/login"}, 403)


async def test_login_of_another_daemon_is_refused(web, other_web):
    stranger = web.stranger()
    assert (await stranger.log_in(await other_web.link())).status == 403
    browser = await other_web.browser()
    assert browser.cookie is not None
    _, _, value = browser.cookie.partition("=")
    stranger.key = browser.key
    stranger.cookie = f"acpterm-{web.origin.rpartition(':')[2]}={value}"
    found = await statuses(stranger, with_key(stranger), NOT_LOGIN)
    assert found == dict.fromkeys(NOT_LOGIN, 401)


async def test_cookie_without_the_key_of_its_page_is_refused(web):
    """Other servers on this machine can see the cookie, and cannot see the key."""
    browser = await web.browser()
    browser.key = web.stranger().key
    found = await statuses(browser, with_key(browser), NOT_LOGIN)
    assert found == dict.fromkeys(NOT_LOGIN, 401)
    found = await statuses(browser, browser.headers, ("/access", "/pty/spawn"))
    assert found == {"/access": 401, "/pty/spawn": 401}


async def test_key_without_the_cookie_is_refused(web):
    browser = await web.browser()
    found = await statuses(browser, without(with_key(browser), "Cookie"), NOT_LOGIN)
    assert found == dict.fromkeys(NOT_LOGIN, 401)


async def test_cookie_of_a_share_is_never_that_of_the_user(web, owner):
    """A cookie works only under its own name, and with the key that belongs to it.

    A browser may have both cookies at a time.
    """
    user, guest = await web.browser(), await guest_of(web, owner, await create(owner))
    assert user.cookie is not None
    assert guest.cookie is not None
    (users_name, _, users), (shares_name, _, shares) = (
        one.cookie.partition("=") for one in (user, guest)
    )
    port = web.origin.rpartition(":")[2]
    assert (users_name, shares_name) == (f"acpterm-{port}", f"acpterm-share-{port}")
    for cookies, key in (
        ([(users_name, shares)], guest.key),
        ([(shares_name, users)], user.key),
        ([(users_name, users)], guest.key),
        ([(shares_name, shares)], user.key),
        ([(users_name, shares), (shares_name, users)], user.key),
        ([(users_name, shares), (shares_name, users)], guest.key),
    ):
        thief = web.stranger()
        thief.cookie = "; ".join(f"{name}={value}" for name, value in cookies)
        thief.key = key
        found = await statuses(thief, with_key(thief), NOT_LOGIN)
        assert found == dict.fromkeys(NOT_LOGIN, 401), cookies
    user.cookie = guest.cookie = f"{user.cookie}; {guest.cookie}"
    assert (await user.request("/access", {})).json() == {"access": "user"}
    assert (await guest.request("/access", {})).json()["access"] == "share"
    assert (await guest.request("/pty/spawn", {})).status == 403


async def test_replayed_link_is_refused(web):
    link = await web.link()
    assert (await web.stranger().log_in(link)).status == 200
    thief = web.stranger()
    assert (await thief.log_in(link)).status == 403
    assert thief.cookie is None


async def test_link_that_is_used_twice_at_once_logs_in_one_browser(web):
    link, found = await web.link(), []

    async def use() -> None:
        found.append((await web.stranger().log_in(link)).status)

    async with trio.open_nursery() as nursery:
        for _ in range(8):
            nursery.start_soon(use)
    assert sorted(found) == [200] + 7 * [403]


@pytest.mark.long
async def test_used_link_is_refused_by_the_next_worker(tmp_path_factory):
    with daemon_in_a_thread(tmp_path_factory.mktemp("replaced")) as web:
        link = await web.link()
        browser = web.stranger()
        assert (await browser.log_in(link)).status == 200
        await web.daemon.kill_worker()
        assert (await web.stranger().log_in(link)).status == 403
        assert (await browser.request("/access", {})).status == 200


class Clock:
    """Seconds since 1970, which the test sets."""

    def __init__(self) -> None:
        self.now = 1e9

    def __call__(self) -> float:
        return self.now


async def test_expired_link_is_refused(tmp_path):
    clock = Clock()
    async with web_here(tmp_path, clock=clock) as web:
        link, other = await web.link(), await web.link()
        clock.now += LINK_LIFETIME_S - 1
        assert (await web.stranger().log_in(link)).status == 200
        clock.now += 1
        assert (await web.stranger().log_in(other)).status == 403


async def test_expired_login_is_refused(tmp_path):
    clock = Clock()
    async with web_here(tmp_path, clock=clock) as web:
        browser = await web.browser()
        clock.now += LOGIN_LIFETIME_S - 1
        assert (await browser.request("/access", {})).status == 200
        clock.now += 1
        found = await statuses(browser, with_key(browser), NOT_LOGIN)
        assert found == dict.fromkeys(NOT_LOGIN, 401)


async def test_expired_share_is_refused(tmp_path):
    clock = Clock()
    async with web_here(tmp_path, clock=clock) as web:
        guest = await web.guest("term_1")
        _, token = web.access.new_share("term_1", write=True, lifetime_s=3600)
        clock.now += 3599
        assert await refused_status(guest.websocket("/user")) == 101
        clock.now += 1
        assert await refused_status(guest.websocket("/user")) == 401
        assert (await web.stranger().log_in(f"{web.origin}/share#{token}")).status == 403


async def test_revoked_share_is_refused_and_its_sockets_are_closed(web, owner):
    terminal = await create(owner)
    shared = await share(owner, terminal)
    guest = web.stranger()
    assert (await guest.log_in(shared["url"])).status == 200
    async with guest.websocket("/user") as socket:
        params = {"protocolVersion": 1}
        await socket.send_json(
            {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        )
        assert "result" in await socket.receive_json()
        await owner.request("share/revoke", {"shareId": shared["shareId"]})
        assert await socket.wait_closed() == 1008
    found = await statuses(guest, with_key(guest), NOT_LOGIN)
    assert found == dict.fromkeys(NOT_LOGIN, 401)
    assert (await web.stranger().log_in(shared["url"])).status == 403


async def test_share_reaches_no_other_path(web, owner):
    guest = await guest_of(web, owner, await create(owner), write=True)
    found = await statuses(guest, with_key(guest), ("/ws", "/acp", "/pty/spawn", "/mcp"))
    assert found == {"/ws": 403, "/acp": 401, "/pty/spawn": 403, "/mcp": 401}


REFUSED = sorted(
    set(USER_METHODS.requests)
    - {"initialize", *(f"_acpterm/terminal/{name}" for name in ("get", "read", "attach", "window"))}
)


@pytest.mark.parametrize("method", REFUSED)
async def test_read_only_share_cannot_call(web, owner, method):
    terminal = await create(owner)
    guest = await guest_of(web, owner, terminal)
    params = {"terminalId": terminal, "data": "x\n", "cols": 50, "rows": 20, "signal": "SIGKILL"}
    async with guest.user() as user:
        with pytest.raises(RpcError) as refused:
            await user.request(method, params)
    assert refused.value.code == METHOD_NOT_FOUND
    assert await text_of(owner, terminal) == ""
    (found,) = await owner.list()
    assert (found["state"], found["cols"], found["rows"]) == ("running", 200, 40)


async def test_share_with_write_can_only_type_besides(web, owner):
    terminal = await create(owner)
    guest = await guest_of(web, owner, terminal, write=True)
    async with guest.user() as user:
        for method in set(REFUSED) - {"_acpterm/terminal/write"}:
            with pytest.raises(RpcError) as refused:
                await user.request(method, {"terminalId": terminal})
            assert refused.value.code == METHOD_NOT_FOUND, method
        await user.terminal_request("write", terminal, data="x\n")


async def test_read_only_share_cannot_change_the_size_with_its_window(web, owner):
    terminal = await create(owner)
    guest = await guest_of(web, owner, terminal)
    async with guest.user() as user:
        _, token = await user.open(
            "terminal/attach", terminalId=terminal, cols=50, rows=20, readOnly=False
        )
        with trio.fail_after(DEADLINE_S):
            while not (await owner.list())[0]["attached"]:
                await trio.lowlevel.checkpoint()
        await user.request("terminal/window", {"token": token, "cols": 51, "rows": 21})
        (found,) = await owner.list()
    assert (found["cols"], found["rows"]) == (200, 40)


@pytest.mark.parametrize("write", [False, True])
async def test_share_cannot_reach_another_terminal(web, owner, write):
    terminal = await create(owner)
    secret = await create(owner, "echo secret; exec cat", name="secret")
    await UserTerminals(owner).until_output(secret, "secret\n")
    guest = await guest_of(web, owner, terminal, write=write)
    async with guest.user() as user:
        for name in (secret, secret[:12], "secret", "@last", "", f"{terminal} ", terminal[:-1]):
            for method in ("get", "read", "attach", *(["write"] if write else [])):
                more = {"token": "t", "cols": 80, "rows": 24, "data": "x\n"}
                with pytest.raises(RpcError) as refused:
                    await user.terminal_request(method, name, **more)
                assert refused.value.code == INVALID_PARAMS, (method, name)
                assert "secret" not in str(refused.value).replace(repr(name), "")
    assert await text_of(owner, secret) == "secret\n"


async def test_share_of_an_agents_terminal_never_types(web, owner):
    async with web.daemon.agent() as (agent, _):
        terminal = await agent.create("cat")
        with pytest.raises(RpcError):
            await share(owner, terminal, write=True)
        guest = await guest_of(web, owner, terminal)
        async with guest.user() as user:
            with pytest.raises(RpcError) as refused:
                await user.terminal_request("write", terminal, data="x\n")
    assert refused.value.code == METHOD_NOT_FOUND


async def test_share_learns_nothing_but_the_terminal(web, owner):
    terminal = await create(owner, "sleep 60", cwd="/usr")
    guest = await guest_of(web, owner, terminal)
    async with guest.user() as user:
        answer = await user.request("initialize", {"protocolVersion": 1})
        found = await user.terminal_request("get", terminal)
    assert found["terminalId"] == terminal
    for name in ("cwd", "pid", "recording", "connectionId", "agent", "sessionId", "env"):
        assert name not in found
    text = f"{answer}{found}"
    for secret in ("/usr", web.daemon.path, "pid", "resume"):
        assert secret not in text


@each_case(
    ("method", "params"),
    [
        ("shutdown", {}),
        ("restart", {}),
        ("approver", {"kind": "prompt", "agent": []}),
        ("web/open", {}),
        ("token/create", {"name": "mine"}),
    ],
)
async def test_page_cannot_end_the_daemon_nor_get_a_token(web, method, params):
    for browser, _ in await accesses(web):
        async with browser.user() as user:
            with pytest.raises(RpcError) as refused:
                await user.request(method, params)
        assert refused.value.code == METHOD_NOT_FOUND


@pytest.mark.long
async def test_no_response_contains_a_token_or_a_secret(web, owner):
    """Each path, and each method of the user that needs no terminal, with the user's own access."""
    await web.link()
    terminal = await create(owner)
    shared = await share(owner, terminal)
    browser = await web.browser()
    assert browser.cookie is not None
    secrets = {
        str(web.api_client().token),
        str(web.agent().token),
        shared["url"].partition("#")[2],
        browser.cookie.partition("=")[2],
        browser.key,
    }
    found = ""
    for path in ("/", "/login", "/share", "/access", "/pty/spawn", "/assets/http-token", "/mcp"):
        for body in (None, {}):
            found += repr(await browser.request(path, body))
    async with browser.user() as user:
        found += repr(await user.request("share/list"))
        assert shared["shareId"] in found
        for method in USER_METHODS.requests:
            # A share is created with its link, which the user asks for.
            if method in ("_acpterm/share/create", "_acpterm/terminal/create"):
                continue
            params = {"terminalId": terminal, "token": method, "cols": 80, "rows": 24}
            with trio.move_on_after(0.3):
                try:
                    found += repr(await user.request(method, params))
                except RpcError as error:
                    found += f"{error}"
        found += repr(dict(user.by_token))
    for secret in secrets:
        assert secret not in found
        assert base64.b64encode(secret.encode()).decode().rstrip("=") not in found


@pytest.mark.long
async def test_shared_guest_cannot_log_the_user_out(web, owner):
    guest = await guest_of(web, owner, await create(owner))
    browser = await web.browser()
    assert (await guest.request("/logout", {})).status == 204
    assert (await browser.request("/access", {})).status == 200
