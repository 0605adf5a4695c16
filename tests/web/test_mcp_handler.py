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

from acpterm.mcp import call
from acpterm.mcp.patterns import ModelPattern
from acpterm.web import mcp_sessions
from acpterm.web.service import WebService
from tests.support.depth import DEADLINE_S
from tests.support.hosts import host_here
from tests.support.mcp import QUICK, Result, result_of
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
            entry.record.command for entry in self.host.state.registry if entry.released_at is None
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
            token = await trio.Path(found.agent_token_file or "").read_text()
            yield McpEndpoint(host, f"{found.origin}/mcp", token.strip())
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
            (entry,) = at.host.state.registry
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
            refused = await second.call("BashOutput", bash_id=next(iter(at.host.state.registry)).id)
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


async def test_session_that_is_idle_ends(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_sessions, "IDLE_TIMEOUT_S", 0.3)
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        session = await initialized(http, at.url)
        status = 200
        with trio.fail_after(10):
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
    monkeypatch.setattr(mcp_sessions, "SESSIONS_MAX", 2)
    async with mcp_endpoint(tmp_path) as at, raw(at) as http:
        session = await initialized(http, at.url)
        await initialized(http, at.url)
        assert (await http.post(at.url, json=INITIALIZE)).status_code == 503
        await http.delete(at.url, headers=session)
        await initialized(http, at.url)


async def test_request_that_begins_no_session_leaves_none(tmp_path, monkeypatch):
    monkeypatch.setattr(mcp_sessions, "SESSIONS_MAX", 1)
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
        assert "there are session, pool, codex, claude" in reply.json()["error"]["message"]
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
async def test_client_of_2026_falls_back_to_the_handshake(tmp_path):
    async with mcp_endpoint(tmp_path) as at, at.client(mode="auto") as tools:
        assert tools.client.protocol_version == "2025-11-25"
        result = await tools.call("terminal_bash", command="echo hi")
    assert result.data["output"] == "hi\n"


@pytest.mark.long
async def test_call_over_http_sends_progress(tmp_path, monkeypatch):
    monkeypatch.setattr(call, "PROGRESS_INTERVAL_S", 0.1)
    told = tmp_path / "told"

    async def on_progress(progress, total, message):
        told.touch()

    # The command ends once progress was received.
    command = f"until [ -e {told} ]; do sleep 0.05; done"
    async with mcp_endpoint(tmp_path) as at, at.client() as tools:
        result = await tools.call("terminal_bash", command=command, progress=on_progress)
    assert result.data["state"] == "exited"


@pytest.mark.long
async def test_cancelled_call_ends_what_it_has_started(tmp_path):
    async with mcp_endpoint(tmp_path) as at, at.client() as tools:
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
        with trio.fail_after(10):
            await updated.wait()


@pytest.mark.long
async def test_answer_of_the_client_counts_if_the_user_allows_that(tmp_path):
    asked = []

    async def elicit(context, params):
        asked.append(params.message)
        return types.ElicitResult(action="accept", content={"decision": "allow"})

    settings = {"profile": "guarded", "mcp_elicitation_approves": True}
    async with (
        mcp_endpoint(tmp_path, **settings) as at,
        at.client(elicitation_callback=elicit) as tools,
    ):
        result = await tools.call("terminal_bash", command="rm -r no-such-directory")
    assert result.data["state"] == "exited"
    assert len(asked) == 1


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
    search = ModelPattern._search

    def recorded(*arguments):
        threads.add(threading.get_ident())
        return search(*arguments)

    monkeypatch.setattr(ModelPattern, "_search", recorded)
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
        at = McpEndpoint(None, f"{web.origin}/mcp", web.agent_token_file.read_text().strip())
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
