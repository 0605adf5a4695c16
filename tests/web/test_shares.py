"""Shares: what a visitor with a link to one terminal can do, until when, and what not."""

import base64
import json
import re
from contextlib import suppress

import pytest
import trio

from acpterm.acp.user_api import TerminalInfo
from acpterm.config import Settings
from acpterm.host.user.methods import USER_METHODS
from acpterm.host.user.shared_terminal import WINDOWS_MAX
from acpterm.jsonrpc import RpcError
from acpterm.web.access import AccessStore
from acpterm.web.access_file import AccessFile, AccessFileError
from acpterm.web.service import WebService
from tests.support.agent import agent_at
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.user import UserTerminals, user_at
from tests.support.web import RefusedError, web_daemon

ECHO = "stty -echo; echo ready; while read -r line; do echo got:$line; done"


async def share(user, terminal, **more):
    return await user.request("share/create", {"terminalId": terminal, **more})


async def create(user, command=ECHO, **more):
    return (await user.request("terminal/create", {"command": command, **more}))["terminalId"]


async def visitor(web, url):
    """Return a browser that has opened a share's link."""
    browser = web.stranger()
    reply = await browser.log_in(url)
    assert reply.status == 200, reply
    return browser


async def until_shown(user, token, text):
    def shown():
        messages = user.by_token[token]
        data = b"".join(base64.b64decode(one["params"]["data"]) for one in messages)
        return text in data

    await user.until(shown)


async def test_visitor_sees_the_terminal_and_no_other(web, user):
    terminal, other = await create(user, name="web"), await create(user)
    shared = await share(user, terminal)
    assert re.fullmatch(re.escape(web.origin) + r"/share#[\w-]{43}", shared["url"])
    browser = await visitor(web, shared["url"])
    async with browser.user() as guest:
        answer = await guest.request("initialize", {"protocolVersion": 1})
        assert answer["clientCapabilities"]["_meta"] == {"acpterm": {"share": True}}
        info = await guest.terminal_request("get", terminal)
        assert (info["name"], info["state"], info["write"]) == ("web", "running", False)
        _, token = await guest.open("terminal/attach", terminalId=terminal, cols=80, rows=24)
        await until_shown(guest, token, b"ready")
        for method in ("get", "read", "attach"):
            for name in (other, "web", "@last", terminal[:-1]):
                with pytest.raises(RpcError, match=f"this share is of terminal '{terminal}' only"):
                    await guest.terminal_request(method, name, token="x", cols=80, rows=24)
    access = await browser.request("/access", method="POST")
    assert access.json()["access"] == "share"
    assert access.json()["terminalId"] == terminal


async def test_visitor_gets_no_paths_pids_or_connections(tmp_path, web, user):
    async with agent_at(web.daemon.path) as agent:
        await agent.initialize()
        terminal = await agent.create("sleep 60", cwd=str(tmp_path))
        full = await user.terminal_request("get", terminal)
        async with (await visitor(web, (await share(user, terminal))["url"])).user() as guest:
            info = await guest.terminal_request("get", terminal)
    hidden = {"cwd", "pid", "connection", "sessionId", "toolCalls", "recording", "agent"}
    assert not hidden & info.keys()
    assert str(tmp_path) not in json.dumps(info)
    assert info == {**{name: full[name] for name in info if name != "write"}, "write": False}


async def test_visitor_reads_the_output_as_windows_are_sent_it(web, user):
    program = r"printf 'one\033]52;c;c3RvbGVu\007\033[31mtwo\n'; read x"
    terminal = await create(user, program)
    await UserTerminals(user).until_output(terminal, "onetwo\n")
    async with (await visitor(web, (await share(user, terminal))["url"])).user() as guest:
        found = await guest.terminal_request("read", terminal, format="text", waitMs=60_000)
        rest = await guest.terminal_request("read", terminal, since=found["position"])
        # The colour is cut: it belongs to the next part.
        cut = await guest.terminal_request("read", terminal, since=19, maxBytes=4)
    assert base64.b64decode(found.pop("data")) == b"one\x1b[31mtwo\r\n"
    assert found == {"position": 29, "lost": 0, "encoding": "base64"}
    assert rest["data"] == ""
    assert (cut["data"], cut["position"]) == ("", 19)


@pytest.mark.costly
@pytest.mark.parametrize("write", [False, True])
async def test_visitor_can_call_no_other_method(web, user, write):
    terminal = await create(user)
    url = (await share(user, terminal, write=write))["url"]
    names = ("get", "read", "attach", "window")
    allowed = {"initialize", *(f"_acpterm/terminal/{name}" for name in names)}
    async with (await visitor(web, url)).user() as guest:
        for method in USER_METHODS.requests.keys() - allowed - {"_acpterm/terminal/write"}:
            with pytest.raises(RpcError, match="there is no method"):
                await guest.request(method, {"terminalId": terminal, "token": "t"})


@pytest.mark.costly
@pytest.mark.parametrize("path", ["/ws", "/acp"])
async def test_visitor_can_use_no_other_websocket(web, user, path):
    browser = await visitor(web, (await share(user, await create(user)))["url"])
    with pytest.raises(RefusedError) as refused:
        async with browser.websocket(path):
            pass
    assert refused.value.status in (401, 403)
    assert (await browser.request("/pty/spawn", {})).status == 403


async def test_visitor_with_a_link_to_read_can_neither_type_nor_resize(web, user):
    terminal = await create(user, cols=100, rows=30)
    await UserTerminals(user).until_output(terminal, "ready\n")
    async with (await visitor(web, (await share(user, terminal))["url"])).user() as guest:
        params = {"terminalId": terminal, "cols": 40, "rows": 10, "readOnly": False}
        _, token = await guest.open("terminal/attach", **params)
        await until_shown(guest, token, b"ready")
        with pytest.raises(RpcError, match="there is no method"):
            await guest.terminal_request("write", terminal, data="one\n")
        await guest.request("terminal/window", {"token": token, "cols": 30, "rows": 8})
        info = await user.terminal_request("get", terminal)
        windows = (await user.terminal_request("inspect", terminal))["windows"]
    assert (info["cols"], info["rows"]) == (100, 30)
    assert windows == [{"cols": 30, "rows": 8, "readOnly": True}]
    assert info["position"] == len("ready\r\n")


async def test_visitor_with_a_link_to_write_types_and_the_audit_log_says_so(tmp_path):
    settings = {"audit_dir": str(tmp_path / "audit")}
    async with (
        web_daemon(tmp_path, settings=settings) as web,
        user_at(web.daemon.user_path) as user,
    ):
        terminal = await create(user)
        url = (await share(user, terminal, write=True))["url"]
        async with (await visitor(web, url)).user() as guest:
            assert (await guest.terminal_request("get", terminal))["write"] is True
            params = {"terminalId": terminal, "cols": 40, "rows": 10}
            _, token = await guest.open("terminal/attach", **params)
            data = base64.b64encode(b"one\n").decode()
            await guest.terminal_request("write", terminal, data=data, encoding="base64")
            await until_shown(guest, token, b"got:one")
            info = await user.terminal_request("get", terminal)
        await user.terminal_request("release", terminal)

        def typed():
            *lines, _ = (tmp_path / "audit" / "audit.jsonl").read_text().split("\n")
            entries = [json.loads(line) for line in lines]
            return [one for one in entries if one.get("event") == "input"] or None

        entries = await poll(typed)
    assert (info["cols"], info["rows"]) == (40, 10)
    assert [(one["by"], one["bytes"]) for one in entries] == [("share", 4)]


async def test_terminal_of_an_agent_is_shared_to_read_only(web, user):
    async with agent_at(web.daemon.path) as agent:
        terminal = await agent.create(ECHO)
        with pytest.raises(RpcError, match="take it over first"):
            await share(user, terminal, write=True)
        assert (await share(user, terminal))["write"] is False


@pytest.mark.costly
@pytest.mark.parametrize(
    ("params", "error"),
    [
        ({"terminalId": "none"}, "there is no terminal 'none'"),
        ({}, "params.terminalId is missing"),
        ({"terminalId": "web", "forMs": 0}, "params.forMs is 0"),
        ({"terminalId": "web", "forMs": 2592000001}, "params.forMs is 2592000001"),
        ({"terminalId": "web", "write": "yes"}, 'params.write is "yes"'),
    ],
)
async def test_share_of_what_cannot_be_is_refused(web, user, params, error):
    await create(user, name="web")
    with pytest.raises(RpcError, match=error):
        await user.request("share/create", params)
    assert (await user.request("share/list"))["shares"] == []


async def test_share_is_listed_and_revoked_and_its_pages_are_closed_at_once(web, user):
    terminal = await create(user, name="web")
    kept, ended = [await share(user, terminal) for _ in range(2)]
    first, second = [await visitor(web, one["url"]) for one in (kept, ended)]
    async with first.user() as stays, second.websocket("/user") as goes:
        await stays.terminal_request("get", terminal)
        listed = (await user.request("share/list"))["shares"]
        await user.request("share/revoke", {"shareId": ended["shareId"]})
        assert await goes.wait_closed() == 1008
        await stays.terminal_request("get", terminal)
        left = (await user.request("share/list"))["shares"]
    assert (await second.log_in(ended["url"])).status == 403
    with pytest.raises(RefusedError) as refused:
        async with second.websocket("/user"):
            pass
    assert refused.value.status == 401
    with pytest.raises(RpcError, match="there is no share"):
        await user.request("share/revoke", {"shareId": ended["shareId"]})
    for one in (kept, ended):
        del one["url"]
    assert [{**one, "connections": 0} for one in listed] == [kept, ended]
    assert [one["connections"] for one in listed] == [1, 1]
    assert [one["shareId"] for one in left] == [kept["shareId"]]


async def test_share_is_revoked_again_if_that_could_not_be_stored(tmp_path, monkeypatch):
    service = WebService(Settings(socket=str(tmp_path / "socket")))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))

    def fail(*arguments):
        raise AccessFileError("no space left on device")

    access = AccessStore(AccessFile(service.private_paths[0]))
    record, _ = access.new_share("term_1", write=False, lifetime_s=60)
    assert [one.id for one in service.shares()] == [record.id]
    with monkeypatch.context() as patch:
        patch.setattr(AccessFile, "write", fail)
        patch.setattr(AccessFile, "overwrite", fail)
        for _ in range(2):
            with pytest.raises(RpcError, match=f"^{record.id} has ended, but .*: no space left"):
                service.revoke_share(record.id)
            assert service.revoked_shares() == {record.id}
    service.revoke_share(record.id)
    assert not service.revoked_shares()


async def test_pages_of_a_share_are_closed_when_it_expires(web, user):
    terminal = await create(user)
    code = None
    for for_ms in (1500, 6000, 24_000):
        shared = await share(user, terminal, forMs=for_ms)
        browser = web.stranger()
        await browser.log_in(shared["url"])
        # On a busy machine the share may end before the page is open.
        with suppress(RefusedError):
            async with browser.websocket("/user") as socket:
                code = await socket.wait_closed()
            break
    assert code == 1008
    assert (await browser.log_in(shared["url"])).status == 403
    assert (await user.request("share/list"))["shares"] == []


@pytest.mark.long
async def test_share_survives_a_new_worker(tmp_path):
    async with web_daemon(tmp_path) as web:
        async with user_at(web.daemon.user_path) as user:
            terminal = await create(user)
            kept, ended = await share(user, terminal), await share(user, terminal)
            browser, other = await visitor(web, kept["url"]), await visitor(web, ended["url"])
            await user.request("share/revoke", {"shareId": ended["shareId"]})
            await user.start("restart")
            await user.closed.wait()
        with trio.fail_after(DEADLINE_S):
            while True:
                try:
                    async with browser.user() as guest:
                        info = await guest.terminal_request("get", terminal)
                    break
                except (RefusedError, OSError, EOFError, ValueError):
                    await trio.sleep(0.1)
        assert info["state"] == "running"
        assert (await visitor(web, kept["url"])).cookie is not None
        assert (await other.log_in(ended["url"])).status == 403
        async with user_at(web.daemon.user_path) as user:
            listed = (await user.request("share/list"))["shares"]
    assert [one["shareId"] for one in listed] == [kept["shareId"]]


async def test_share_ends_with_its_terminal(web, user):
    terminal = await create(user)
    shared = await share(user, terminal)
    browser = await visitor(web, shared["url"])
    async with browser.websocket("/user") as socket:
        await user.terminal_request("release", terminal)
        assert await socket.wait_closed() == 1008
    reply = await browser.log_in(shared["url"])
    assert (reply.status, "the link has ended" in reply.text) == (403, True)
    assert (await user.request("share/list"))["shares"] == []


async def test_share_stays_when_the_program_has_exited(web, user):
    terminal = await create(user, "exit 3")
    shared = await share(user, terminal)
    await user.terminal_request("wait", terminal)
    async with (await visitor(web, shared["url"])).user() as guest:
        info = await guest.terminal_request("get", terminal)
    assert info["exitStatus"]["exitCode"] == 3


async def test_audit_log_says_what_was_shared_and_who_came(web, user):
    terminal = await create(user)
    shared = await share(user, terminal)
    identifier = shared["shareId"]
    browser = await visitor(web, shared["url"])
    async with browser.user() as guest:
        await guest.open("terminal/attach", terminalId=terminal, cols=80, rows=24)
    assert (await browser.request("/logout", {})).status == 204
    await visitor(web, shared["url"])
    await user.request("share/revoke", {"shareId": identifier})
    other = await share(user, terminal)
    await user.terminal_request("release", terminal)
    with trio.fail_after(DEADLINE_S):
        while True:
            entries = (await user.request("audit/read", {"limit": 100}))["entries"]
            ids = identifier, other["shareId"]
            found = [one for one in reversed(entries) if one.get("share") in ids]
            if len(found) == 9:
                break
            await trio.sleep(0.1)
    who = [(one["event"], one.get("by"), one.get("share")) for one in found]
    visit = ("login", "share", identifier)
    assert sorted(who[:6]) == sorted(
        [
            ("share", "user", identifier),
            visit,
            ("attach", "share", identifier),
            ("detach", "share", identifier),
            ("logout", "share", identifier),
            visit,
        ]
    )
    assert who[6:] == [
        ("unshare", "user", identifier),
        ("share", "user", other["shareId"]),
        ("unshare", None, other["shareId"]),
    ]


async def test_visitor_has_few_windows_and_few_connections(web, user):
    terminal = await create(user)
    browser = await visitor(web, (await share(user, terminal))["url"])
    async with browser.user() as guest:
        for _ in range(WINDOWS_MAX):
            await guest.open("terminal/attach", terminalId=terminal, cols=80, rows=24)
        params = {"token": "more", "cols": 80, "rows": 24}
        with pytest.raises(RpcError, match="4 windows are attached"):
            await guest.terminal_request("attach", terminal, **params)
        async with trio.open_nursery() as nursery:
            opened = []

            async def hold(task_status):
                async with browser.websocket("/user") as socket:
                    opened.append(socket)
                    task_status.started()
                    await trio.sleep_forever()

            for _ in range(15):
                await nursery.start(hold)
            async with browser.websocket("/user") as socket:
                assert await socket.wait_closed() == 1013
            nursery.cancel_scope.cancel()


async def test_page_of_the_user_can_share_and_revoke(tmp_path, web):
    async with (await web.browser()).user() as page:
        shared = await share(page, await create(page))
        assert (await visitor(web, shared["url"])).cookie is not None
        await page.request("share/revoke", {"shareId": shared["shareId"][:8]})


def test_logins_of_a_share_do_not_end_those_of_the_user(tmp_path):
    access = AccessStore(AccessFile(str(tmp_path / "web")))
    key = "k" * 43
    users = access.exchange(access.new_link(), key)
    record, token = access.new_share("term_1", write=False, lifetime_s=60)
    cookies = [access.exchange(token, key).cookie for _ in range(300)]
    assert access.of_cookie(users.cookie, key).share is None
    assert access.of_cookie(cookies[-1], key).share == record
    assert access.of_cookie(cookies[0], key) is None


def test_shared_terminal_has_only_fields_of_a_terminal():
    from acpterm.acp.shares import SharedTerminalInfo

    known = {*TerminalInfo.__struct_fields__, "write"}
    assert set(SharedTerminalInfo.__struct_fields__) <= known


async def test_connection_is_cancelled_if_the_login_has_ended_just_before(tmp_path):
    access = AccessStore(AccessFile(str(tmp_path / "web")))
    record, token = access.new_share("term_1", write=False, lifetime_s=60)
    login = access.exchange(token, "k" * 43)
    access.revoke_share(record.id)
    with trio.fail_after(DEADLINE_S), access.cancelling(login.access) as scope:
        await trio.sleep_forever()
    assert scope.cancelled_caught
