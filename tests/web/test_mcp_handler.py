"""`/mcp`: the MCP tools over HTTP, used by the official client."""

import gc
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import httpx2
import mcp
import mcp_types as types
import pytest
import trio
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from acpterm.config.tools import ToolsFor
from acpterm.mcp import call
from acpterm.mcp.patterns import ModelPattern
from acpterm.web import mcp_sessions
from acpterm.web.service import WebService
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.mcp import DANGEROUS, MODERN, QUICK, Result, answer, result_of
from tests.support.polling import poll
from tests.support.user import user_at
from tests.support.web import web_daemon

# The SDK's client leaves the end of its responses' streams to the garbage collector.
pytestmark = pytest.mark.filterwarnings("ignore:Async generator 'http")

INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "raw", "version": "1"},
    },
}
ACCEPT = {"Accept": "application/json, text/event-stream"}
# The arguments of `terminal_continue` that type into `cat`, and wait for more than the echo.
HI = {"sessionId": "term-1", "stdin": "hi\n", "wait_for": "hi\nhi\n", "timeout_seconds": DEADLINE_S}


class McpEndpoint(NamedTuple):
    """A host, and where its `/mcp` is."""

    host: Any
    url: str
    token: str
    service: WebService | None = None

    @asynccontextmanager
    async def client(
        self, path: str = "", headers: dict[str, str] | None = None, **options: Any
    ) -> AsyncIterator["Tools"]:
        """Connect the SDK's client."""
        name = options.pop("agent", "test-client")
        options.setdefault("mode", "legacy")
        async with (
            httpx2.AsyncClient(headers=self.bearer | (headers or {}), timeout=30) as http,
            mcp.Client(
                streamable_http_client(self.url + path, http_client=http),
                client_info=types.Implementation(name=name, version="1"),
                **options,
            ) as client,
        ):
            yield Tools(client)
        gc.collect()

    @property
    def bearer(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"}

    @property
    def terminals(self) -> list[str]:
        """The commands of the terminals that are not released."""
        return [
            entry.record.command
            for entry in self.host.terminals.registry
            if entry.released_at is None
        ]


class Tools(NamedTuple):
    client: mcp.Client

    async def call(self, name: str, /, progress: Any = None, **arguments: object) -> Result:
        return result_of(await self.client.call_tool(name, arguments, progress_callback=progress))


@pytest.fixture(autouse=True)
def state(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@asynccontextmanager
async def mcp_endpoint(tmp_path: Path, **settings: Any) -> AsyncIterator[McpEndpoint]:
    chosen = {"profile": "open", "socket": str(tmp_path / "agent.sock"), **QUICK, **settings}
    async with host_here(**chosen, http="127.0.0.1:0") as host:
        service = WebService(host.settings)
        async with trio.open_nursery() as nursery:
            nursery.start_soon(service.run, host)
            await poll(lambda: service.status().address)
            found = service.status()
            token = service.new_token("agent")
            yield McpEndpoint(host, f"{found.origin}/mcp", token, service)
            nursery.cancel_scope.cancel()


@pytest.mark.long
async def test_client_over_http_uses_a_terminal_which_ends_with_the_session(tmp_path):
    async with mcp_endpoint(tmp_path) as at:
        headers = {"Acpterm-Cwd": str(tmp_path)}
        async with at.client(headers=headers, agent="my-agent") as tools:
            started = await tools.call("terminal_start", command="cat")
            assert started.data["cwd"] == str(tmp_path)
            result = await tools.call("terminal_continue", **HI)
            assert result.data["output"] == "hi\nhi\n"
            (entry,) = at.host.terminals.registry
            assert entry.session is not None
            assert entry.session.agent.name == "my-agent"
        # The client ends the session with DELETE.
        await poll(lambda: not at.terminals)


@pytest.mark.long
@pytest.mark.parametrize(
    ("path", "tool"),
    [
        ("", "terminal_bash"),
        ("/session", "terminal_bash"),
        ("/pool", "spawn_background_terminal"),
        ("/codex", "exec_command"),
        ("/claude", "BashOutput"),
        ("/inspect", "bash_session"),
    ],
)
async def test_path_selects_the_tools(tmp_path, path, tool):
    async with mcp_endpoint(tmp_path) as at, at.client(path) as tools:
        listed = await tools.client.list_tools()
    assert tool in [one.name for one in listed.tools]


@pytest.mark.long
async def test_tools_of_the_pool_have_its_profile(tmp_path):
    async with mcp_endpoint(tmp_path) as at, at.client("/pool") as tools:
        result = await tools.call("spawn_background_terminal", command=["rm", "x"], cwd="/")
    assert result.blocks == ["Command blocked for security reasons"]


@pytest.mark.long
async def test_clients_have_sessions_and_terminals_of_their_own(tmp_path):
    async with mcp_endpoint(tmp_path) as at, at.client() as first:
        await first.call("terminal_start", command="cat")
        async with at.client("/claude") as second:
            await second.call("Bash", command="sleep 60", run_in_background=True)
            assert len(at.terminals) == 2
            refused = await second.call(
                "BashOutput", bash_id=next(iter(at.host.terminals.registry)).id
            )
            assert refused.is_error
        await poll(lambda: len(at.terminals) == 1)
        result = await first.call("terminal_continue", **HI)
    assert result.data["output"] == "hi\nhi\n"


@asynccontextmanager
async def raw(at: McpEndpoint) -> AsyncIterator[httpx2.AsyncClient]:
    async with httpx2.AsyncClient(headers=ACCEPT | at.bearer, timeout=30) as http:
        yield http


async def initialized(http: httpx2.AsyncClient, url: str) -> dict[str, str]:
    """Begin a session; return the header that names it."""
    reply = await http.post(url, json=INITIALIZE)
    assert reply.status_code == 200, reply.text
    return {"Mcp-Session-Id": reply.headers["mcp-session-id"]}


PING = {"jsonrpc": "2.0", "id": 2, "method": "ping"}


async def test_deleted_session_is_not_found(tmp_path):
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        session = await initialized(http, at.url)
        assert (await http.post(at.url, json=PING, headers=session)).status_code == 200
        assert (await http.delete(at.url, headers=session)).status_code == 200
        assert (await http.post(at.url, json=PING, headers=session)).status_code == 404


async def test_session_belongs_to_its_token_and_ends_with_it(tmp_path):
    async with mcp_endpoint(tmp_path) as at, raw(at) as http, at.client() as tools:
        await tools.call("terminal_start", command="cat")
        session = await initialized(http, at.url)
        other = session | {"Authorization": f"Bearer {at.service.new_token('other')}"}
        assert (await http.post(at.url, json=PING, headers=other)).status_code == 404
        assert (await http.delete(at.url, headers=other)).status_code == 404
        assert (await http.post(at.url, json=PING, headers=session)).status_code == 200
        assert at.service.remove_token("agent")
        await poll(lambda: not at.terminals)
        assert (await http.post(at.url, json=PING, headers=session)).status_code == 401
        again = {"Authorization": f"Bearer {at.service.new_token('agent')}"}
        reply = await http.post(at.url, json=PING, headers=session | again)
        assert reply.status_code == 404


async def test_session_that_is_idle_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_sessions, "IDLE_TIMEOUT_S", 0.3)
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        session = await initialized(http, at.url)
        status = 200
        with trio.fail_after(DEADLINE_S):
            while status == 200:
                # A request of the session would keep it.
                await trio.sleep(0.4)
                status = (await http.post(at.url, json=PING, headers=session)).status_code
    assert status == 404


async def test_session_with_an_open_stream_is_not_idle(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_sessions, "IDLE_TIMEOUT_S", 0.2)
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        status = 404
        with trio.fail_after(DEADLINE_S):
            # On a busy machine the session may end before the stream is open.
            while status == 404:
                session = await initialized(http, at.url)
                async with http.stream("GET", at.url, headers=session) as stream:
                    status = stream.status_code
                    if status == 200:
                        await trio.sleep(0.5)
                        reply = await http.post(at.url, json=PING, headers=session)
                        assert reply.status_code == 200
        assert status == 200


async def test_sessions_are_limited_in_number(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_sessions, "SERVERS_MAX", 2)
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        session = await initialized(http, at.url)
        await initialized(http, at.url)
        assert (await http.post(at.url, json=INITIALIZE)).status_code == 503
        await http.delete(at.url, headers=session)
        await initialized(http, at.url)


async def test_request_that_begins_no_session_leaves_none(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_sessions, "SERVERS_MAX", 1)
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        assert (await http.post(at.url, json=PING)).status_code == 400
        assert (await http.post(at.url, content=b"{")).status_code == 400
        assert (await http.get(at.url)).status_code == 400
        assert (await http.post(at.url, content=b" " * (2 << 20))).status_code == 413
        reply = await http.post(at.url, json=INITIALIZE, headers={"Accept": "text/plain"})
        assert reply.status_code == 406
        await initialized(http, at.url)


async def test_unknown_tools_and_relative_directories_are_errors(tmp_path):
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        reply = await http.post(f"{at.url}/other", json=INITIALIZE)
        assert reply.status_code == 404
        assert "there are session, pool, codex, claude, inspect" in reply.json()["error"]["message"]
        reply = await http.post(at.url, json=INITIALIZE, headers={"Acpterm-Cwd": "work"})
        assert reply.status_code == 400


@pytest.mark.long
async def test_directory_is_percent_encoded(tmp_path):
    work = tmp_path / "a b%ü"
    work.mkdir()
    headers = {"Acpterm-Cwd": quote(str(work))}
    async with mcp_endpoint(tmp_path) as at, at.client(headers=headers) as tools:
        result = await tools.call("terminal_bash", command="pwd")
    assert result.data["output"] == f"{work}\n"


@pytest.mark.long
async def test_profile_of_the_header_applies(tmp_path):
    headers = {"Acpterm-Profile": "pool"}
    async with mcp_endpoint(tmp_path) as at, at.client(headers=headers) as tools:
        result = await tools.call("terminal_bash", command="rm x")
    assert result.is_error


@pytest.mark.long
async def test_unknown_profile_of_the_header_is_an_error_of_the_call(tmp_path):
    headers = {"Acpterm-Profile": "no-such-profile"}
    async with mcp_endpoint(tmp_path) as at, at.client(headers=headers) as tools:
        result = await tools.call("terminal_bash", command="true")
        assert result.is_error
        assert "no-such-profile" in result.text


@pytest.mark.long
async def test_terminals_of_2026_outlive_a_request_and_a_client(tmp_path):
    async with mcp_endpoint(tmp_path) as at:
        headers = {"Acpterm-Cwd": str(tmp_path)}
        async with at.client(mode="auto", headers=headers, agent="my-agent") as tools:
            assert tools.client.protocol_version == "2026-07-28"
            started = await tools.call("terminal_start", command="cat")
            assert started.data["cwd"] == str(tmp_path)
            (entry,) = at.host.terminals.registry
            assert entry.session is not None
            assert entry.session.agent.name == "agent"  # the name of the token
        async with at.client(mode="2026-07-28", headers=headers) as tools:
            result = await tools.call("terminal_continue", **HI)
            assert result.data["output"] == "hi\nhi\n"


DISCOVER: dict[str, Any] = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "server/discover",
    "params": {"_meta": MODERN},
}
ROUTE = {"Mcp-Protocol-Version": "2026-07-28", "Mcp-Method": "server/discover"}


@pytest.mark.parametrize(
    ("headers", "changes", "status", "code"),
    [
        ({}, {}, 200, None),
        ({"Mcp-Session-Id": "ignored"}, {}, 200, None),
        ({"Mcp-Method": "tools/list"}, {}, 400, -32020),
        ({"Mcp-Method": ""}, {}, 400, -32020),
        ({"Mcp-Protocol-Version": "2027-01-01"}, {}, 400, -32020),
        ({}, {"params": {}}, 400, -32602),
        ({"Mcp-Method": "initialize"}, {"method": "initialize"}, 404, -32601),
        ({"Mcp-Method": "ping"}, {"method": "ping"}, 404, -32601),
        ({"Mcp-Method": "prompts/list"}, {"method": "prompts/list"}, 404, -32601),
        ({"Mcp-Method": "tools/call"}, {"method": "tools/call"}, 400, -32602),
        ({}, {"id": []}, 400, -32600),
        ({"Accept": "text/plain"}, {}, 406, None),
    ],
)
async def test_request_of_2026_has_the_status_of_the_specification(
    tmp_path, headers, changes, status, code
):
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        reply = await http.post(at.url, json=DISCOVER | changes, headers=ROUTE | headers)
    assert reply.status_code == status
    assert "mcp-session-id" not in reply.headers
    if code is not None:
        assert reply.json()["error"]["code"] == code
    elif status == 200:
        assert reply.json()["result"]["supportedVersions"] == ["2026-07-28"]
        assert reply.json()["result"]["ttlMs"] > 0


async def test_version_that_is_not_served_is_refused_with_those_that_are(tmp_path):
    version = {"Mcp-Protocol-Version": "2027-01-01"}
    meta = {**MODERN, "io.modelcontextprotocol/protocolVersion": "2027-01-01"}
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        body = DISCOVER | {"params": {"_meta": meta}}
        reply = await http.post(at.url, json=body, headers=ROUTE | version)
        assert reply.status_code == 400
        error = reply.json()["error"]
        assert error["code"] == -32022
        assert error["data"] == {"supported": ["2026-07-28"], "requested": "2027-01-01"}
        assert (await http.get(at.url, headers=ROUTE)).status_code == 405
        assert (await http.delete(at.url, headers=ROUTE)).status_code == 405


def called(name: str, **arguments: object) -> dict[str, Any]:
    """Return the body and headers of a call of a tool in the protocol of 2026."""
    params = DISCOVER["params"] | {"name": name, "arguments": arguments}
    return {
        "json": DISCOVER | {"method": "tools/call", "params": params},
        "headers": ROUTE | {"Mcp-Method": "tools/call", "Mcp-Name": name},
    }


@pytest.mark.long
async def test_terminals_of_2026_belong_to_their_token_and_end_with_it(tmp_path):
    async with mcp_endpoint(tmp_path) as at, raw(at) as http, trio.open_nursery() as nursery:
        await http.post(at.url, **called("terminal_start", command="cat"))
        other = McpEndpoint(at.host, at.url, at.service.new_token("other"))
        async with raw(other) as others:
            reply = await others.post(at.url, **called("terminal_list"))
            assert "No active terminal sessions" in reply.text
            (entry,) = at.host.terminals.registry
            shown = called("terminal_output", sessionId=entry.id)
            assert (await others.post(at.url, **shown)).json()["result"]["isError"]
        replies = []

        async def wait():
            replies.append(await http.post(at.url, **called("terminal_bash", command="sleep 60")))

        nursery.start_soon(wait)
        await poll(lambda: at.terminals == ["cat", "sleep 60"])
        assert at.service.remove_token("agent")
        await poll(lambda: not at.terminals)
        await poll(lambda: bool(replies))
        assert "token" in replies[0].json()["error"]["message"]
        assert (await http.post(at.url, **called("terminal_list"))).status_code == 401
        again = McpEndpoint(at.host, at.url, at.service.new_token("agent"))
        async with raw(again) as others:
            reply = await others.post(at.url, **called("terminal_list"))
            assert "No active terminal sessions" in reply.text


@pytest.mark.long
async def test_terminals_of_2026_end_when_they_were_idle(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_sessions, "IDLE_TIMEOUT_S", 0.3)
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        with trio.fail_after(DEADLINE_S):
            # On a busy machine the server may end between the two calls. The second one takes
            # longer than a server may be idle.
            while not at.terminals:
                await http.post(at.url, **called("terminal_start", command="cat"))
                reply = await http.post(at.url, **called("terminal_bash", command="sleep 0.6"))
                assert "exited" in reply.text
        await poll(lambda: not at.terminals)
        reply = await http.post(at.url, **called("terminal_output", sessionId="term-1"))
        assert reply.json()["result"]["isError"]


async def test_servers_of_2026_are_limited_in_number(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_sessions, "SERVERS_MAX", 1)
    listed = called("terminal_list")
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        # A request that is refused opens none.
        assert (await http.post(at.url, json=DISCOVER | {"id": []}, headers=ROUTE)).is_error
        assert "result" in (await http.post(at.url, **listed)).json()
        assert "result" in (await http.post(at.url, **listed)).json()
        reply = await http.post(f"{at.url}/pool", **called("list_terminals"))
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "60")
        assert "try later" in reply.json()["error"]["message"]
        assert (await http.post(at.url, json=INITIALIZE)).status_code == 503
        monkeypatch.setattr(mcp_sessions, "SERVERS_MAX", 64)
        monkeypatch.setattr(mcp_sessions, "AGENT_SERVERS_MAX", 1)
        reply = await http.post(f"{at.url}/pool", **called("list_terminals"))
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "60")
        assert "try later" in reply.json()["error"]["message"]
        assert (await http.post(at.url, json=INITIALIZE)).status_code == 200


async def test_request_of_2026_is_refused_while_another_opens_the_last_server(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(mcp_sessions, "SERVERS_MAX", 1)
    opens, refused = trio.Event(), trio.Event()
    real = mcp_sessions.open_server

    @asynccontextmanager
    async def open_server(*args, **options):
        opens.set()
        await refused.wait()
        async with real(*args, **options) as server:
            yield server

    monkeypatch.setattr(mcp_sessions, "open_server", open_server)

    async def request() -> None:
        assert "result" in (await http.post(at.url, **called("terminal_list"))).json()

    async with mcp_endpoint(tmp_path) as at, raw(at) as http, trio.open_nursery() as nursery:
        nursery.start_soon(request)
        with trio.fail_after(DEADLINE_S):
            await opens.wait()
            reply = await http.post(f"{at.url}/pool", **called("list_terminals"))
        assert (reply.status_code, reply.headers["retry-after"]) == (503, "60")
        refused.set()


@pytest.mark.long
async def test_client_of_2026_that_cannot_ask_learns_that_the_approval_is_pending(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(call, "BLOCK_MAX_S", 1.0)
    async with mcp_endpoint(tmp_path, profile="guarded") as at, at.client(mode="auto") as tools:
        result = await tools.call("terminal_bash", command=DANGEROUS)
        assert result.data["state"] == "approval_pending"
        assert "acpterm approvals" in result.text
        await answer(at.host, "allow")
        waited = await tools.call("terminal_wait", sessionId=result.data["id"])
        assert waited.data["state"] == "exited"


@pytest.mark.long
async def test_listener_of_2026_over_http_is_notified_of_output_and_sessions(tmp_path):
    async with mcp_endpoint(tmp_path) as at, at.client(mode="auto") as tools:
        await tools.call("terminal_start", command="read line; echo got $line; sleep 60")
        uri = "acpterm://terminal/term-1"
        async with tools.client.listen(
            resource_subscriptions=[uri], resources_list_changed=True
        ) as events:
            await tools.call("terminal_continue", sessionId="term-1", stdin="it\n")
            with trio.fail_after(DEADLINE_S):
                assert (await anext(events)).uri == uri
            await tools.call("terminal_start", command="cat")
            with trio.fail_after(DEADLINE_S):
                while type(await anext(events)).__name__ != "ResourcesListChanged":
                    pass


MODES = pytest.mark.parametrize("mode", ["legacy", "auto"])


@MODES
@pytest.mark.long
async def test_call_over_http_sends_progress(tmp_path, monkeypatch, mode):
    monkeypatch.setattr(call, "PROGRESS_INTERVAL_S", 0.1)
    told = tmp_path / "told"

    async def on_progress(progress, total, message):
        told.touch()

    # The command ends once progress was received.
    command = f"until [ -e {told} ]; do sleep 0.05; done"
    async with mcp_endpoint(tmp_path) as at, at.client(mode=mode) as tools:
        result = await tools.call("terminal_bash", command=command, progress=on_progress)
    assert result.data["state"] == "exited"


@MODES
@pytest.mark.long
async def test_cancelled_call_ends_what_it_has_started(tmp_path, mode):
    async with mcp_endpoint(tmp_path) as at, at.client(mode=mode) as tools:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(lambda: tools.call("terminal_bash", command="sleep 60"))
                await poll(lambda: at.terminals == ["sleep 60"])
                scope.cancel()
        await poll(lambda: not at.terminals)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:resources/")
async def test_subscriber_over_http_is_notified_of_output(tmp_path):
    updated = trio.Event()

    async def on_message(message):
        if isinstance(message, types.ResourceUpdatedNotification):
            updated.set()

    async with mcp_endpoint(tmp_path) as at, at.client(message_handler=on_message) as tools:
        await tools.call("terminal_start", command="read line; echo got $line; sleep 60")
        await tools.client.subscribe_resource("acpterm://terminal/term-1")
        await tools.call("terminal_continue", sessionId="term-1", stdin="it\n")
        with trio.fail_after(DEADLINE_S):
            await updated.wait()


@MODES
@pytest.mark.long
async def test_answer_of_the_client_counts_if_the_user_allows_that(tmp_path, mode):
    asked = []

    async def elicit(context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "allow"})

    settings = {"profile": "guarded", "mcp_elicitation_approves": True}
    async with (
        mcp_endpoint(tmp_path, **settings) as at,
        at.client(mode=mode, elicitation_callback=elicit) as tools,
    ):
        result = await tools.call("terminal_bash", command=DANGEROUS)
    assert result.data["state"] == "exited"
    assert len(asked) == 1


@pytest.mark.long
async def test_clients_of_2026_that_share_a_token_have_their_own_settings_and_questions(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(call, "BLOCK_MAX_S", 1.0)
    asked = []

    async def elicit(context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "allow"})

    table = ToolsFor(agent="plain", structured=False, crop_output=500)
    settings = {"profile": "guarded", "mcp_elicitation_approves": True, "tools_for": [table]}
    async with mcp_endpoint(tmp_path, **settings) as at:
        async with at.client(mode="2026-07-28", agent="plain") as tools:
            result = await tools.call("terminal_bash", command="seq 1000")
            assert not result.data
            assert len(result.text) <= 500
            result = await tools.call("terminal_bash", command=DANGEROUS)
            assert "pending-1" in result.text
        options = {"mode": "2026-07-28", "agent": "asks", "elicitation_callback": elicit}
        async with at.client(**options) as tools:
            result = await tools.call("terminal_bash", command="seq 1000")
            assert result.data["output"].endswith("\n999\n1000\n")
            assert len(result.text) > 500
            result = await tools.call("terminal_bash", command=f"{DANGEROUS} -v")
            assert result.data["state"] == "exited"
    assert len(asked) == 1
    assert f"{DANGEROUS} -v" in asked[0]


@pytest.mark.long
async def test_persistent_shell_works_in_the_process_of_the_host(tmp_path):
    headers = {"Acpterm-Cwd": str(tmp_path)}
    async with mcp_endpoint(tmp_path) as at, at.client(headers=headers) as tools:
        await tools.call("terminal_bash", command="here=7; cd /", session="one")
        result = await tools.call("terminal_bash", command="echo $here; pwd", session="one")
    assert result.data["output"] == "7\n/\n"


@pytest.mark.long
async def test_slow_pattern_does_not_block_the_event_loop(tmp_path, monkeypatch):
    threads = set()
    search = ModelPattern.search

    def recorded(*arguments):
        threads.add(threading.get_ident())
        return search(*arguments)

    monkeypatch.setattr(ModelPattern, "search", recorded)
    async with mcp_endpoint(tmp_path) as at, at.client() as tools:
        await tools.call("terminal_start", command="printf '%05000d!\\n' 0; sleep 60")
        await tools.call("terminal_wait", sessionId="term-1", pattern="00!")
        result = await tools.call("terminal_output", sessionId="term-1", grep="(0+)+$")
        assert "too slow" in result.text
    assert threads
    assert threading.get_ident() not in threads


@pytest.mark.long
async def test_session_that_fails_does_not_end_the_others(tmp_path, monkeypatch):
    async with mcp_endpoint(tmp_path) as at, at.client() as tools:
        await tools.call("terminal_start", command="cat")
        monkeypatch.setattr(mcp_sessions, "serve_messages", lambda *_, **__: 1 // 0)
        async with raw(at) as http:
            with suppress(httpx2.HTTPError):
                await http.post(at.url, json=INITIALIZE, timeout=1)
        result = await tools.call("terminal_continue", **HI)
    assert result.data["output"] == "hi\nhi\n"


@pytest.mark.exhaustive
@pytest.mark.long
async def test_replaced_worker_ends_sessions_and_then_their_terminals(tmp_path):
    settings = {"profile": "open", "resume_timeout": 1.0}
    async with web_daemon(tmp_path, settings=settings) as web:
        at = McpEndpoint(None, f"{web.origin}/mcp", web.agent_token)
        async with raw(at) as http:
            session = await initialized(http, at.url)
            async with at.client() as tools:
                await tools.call("terminal_start", command="sleep 60")
                await web.daemon.kill_worker()
                with trio.fail_after(DEADLINE_S):
                    while (reply := await posted(http, at.url, session)) is None:
                        await trio.sleep(0.05)
                assert reply.status_code == 404
                assert "initialize again" in reply.text
                with pytest.raises(MCPError):
                    await tools.call("terminal_list")
        async with at.client() as tools:
            listed = await tools.call("terminal_list")
            assert listed.text == "No active terminal sessions."
        async with user_at(web.daemon.user_path) as user:
            with trio.fail_after(DEADLINE_S):
                while await user.list():
                    await trio.sleep(0.05)


async def posted(http: httpx2.AsyncClient, url: str, headers: dict[str, str]) -> Any:
    """Send a ping; return the reply, or None if the server is being replaced."""
    try:
        return await http.post(url, json=PING, headers=headers)
    except httpx2.TransportError:
        return None
