"""Sockets for the MCP servers of sessions: what the agent receives, and what clients can do."""

import json
import os
import sys
import tempfile
from contextlib import asynccontextmanager, suppress

import msgspec
import pytest
import trio
import trio.testing
from msgspec import Raw

from acpterm import __version__
from acpterm.acp.agent_meta import EXTENSIONS
from acpterm.agents.session_sockets import sockets as session_socket
from acpterm.agents.session_sockets.routes import EventRoutes
from acpterm.agents.session_sockets.server_entry import McpOptions, with_server
from acpterm.agents.session_sockets.sockets import SocketClient
from acpterm.config.profiles import ProfileTable
from acpterm.jsonrpc import RpcError
from acpterm.runtime.unix_socket import PeerCredentials
from tests.support.asking import asking_settings
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.editor import create, of, proxied, say
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.proxies import editor_of
from tests.support.rpc import RpcClient, running
from tests.support.user import user_at

ACPTERM = {
    "name": "acpterm",
    "command": sys.executable,
    "args": ["-P", "-m", "acpterm", "mcp"],
    "env": [
        {"name": "ACPTERM_MCP_SOCKET", "value": "/run/s"},
        {"name": "ACPTERM_MCP_CWD", "value": "/project"},
    ],
}
OTHER = {"name": "files", "command": "/bin/files", "args": [], "env": []}
HTTP = {"type": "http", "name": "web", "url": "https://example.org/mcp", "headers": []}


@pytest.fixture(autouse=True)
def run_dir(monkeypatch):
    """Yield a new runtime directory of the user, in which the sockets are created.

    Also unset the variables that acpterm's entry in `mcpServers` would pass on.
    """
    for name in ("ACPTERM_CONFIG", "XDG_CONFIG_HOME"):
        monkeypatch.delenv(name, raising=False)
    # Not `tmp_path`, which may be too long for the path of a socket.
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield directory


def servers(*given, options=McpOptions(), cwd="/project", is_v2=False):  # noqa: B008
    raw = Raw(msgspec.json.encode(given))
    found = with_server(raw, options, "/run/s", cwd, is_v2=is_v2)
    return msgspec.json.decode(msgspec.json.encode(found))


# The entry


def test_server_is_added_to_those_of_the_editor():
    assert servers() == [ACPTERM]
    assert servers(OTHER, HTTP) == [OTHER, HTTP, ACPTERM]
    assert with_server(None, McpOptions(), "/run/s", "/project", is_v2=False) == [ACPTERM]
    assert servers(is_v2=True) == [{"type": "stdio", **ACPTERM}]


def test_server_gets_the_options_and_the_settings_of_the_proxy(monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", "/config")
    (entry,) = servers(options=McpOptions("codex", "my.toml", "strict"), cwd=None)
    config = os.path.abspath("my.toml")
    assert entry["args"][4:] == ["--tools", "codex", "--config", config, "--profile", "strict"]
    assert {one["name"]: one["value"] for one in entry["env"]} == {
        "ACPTERM_MCP_SOCKET": "/run/s",
        "XDG_CONFIG_HOME": "/config",
    }


def test_server_gets_a_name_that_no_other_has():
    given = [{**OTHER, "name": "acpterm"}, {**OTHER, "name": "acpterm-2"}]
    assert servers(*given)[2] == {**ACPTERM, "name": "acpterm-3"}


@pytest.mark.parametrize(
    "words",
    [
        ["/usr/bin/acpterm", "mcp", "--tools", "pool"],
        ["uvx", "acpterm", "mcp"],
        [sys.executable, "-P", "-m", "acpterm", "mcp"],
        ["/opt/acpterm.pyz", "mcp"],
    ],
)
def test_editors_own_server_is_bound_to_the_session_and_not_added_twice(words):
    own = {
        "name": "shell",
        "command": words[0],
        "args": words[1:],
        "env": [{"name": "A", "value": "1"}],
    }
    bound = {**own, "env": [*own["env"], *ACPTERM["env"]]}
    assert servers(OTHER, own, HTTP) == [OTHER, bound, HTTP]
    # That of a proxy before this one stays bound to that proxy.
    assert servers(bound) == [bound]


@pytest.mark.parametrize(
    "own",
    [
        {**OTHER, "args": ["mcp", "acpterm"]},
        {**OTHER, "name": "acpterm-like", "command": "/bin/acpterm", "args": ["stdio"]},
        {"type": "http", "name": "mcp", "url": "https://example.org/acpterm/mcp", "headers": []},
        {},
        [],
        "acpterm mcp",
    ],
)
def test_other_server_is_not_mistaken_for_acpterm(own):
    assert servers(own) == [own, ACPTERM]


# The sockets


def sent(tmp_path, method):
    """Return the params of the requests of this method that the agent has received."""
    # What follows the last line end is being written.
    *lines, _ = (tmp_path / "log").read_text().split("\n")
    messages = [json.loads(line) for line in lines]
    return [
        one["msg"]["params"]
        for one in messages
        if one["dir"] == "proxy->agent" and one["msg"].get("method") == method
    ]


def path_in(params):
    (server,) = [one for one in params["mcpServers"] if one["name"] == "acpterm"]
    return {one["name"]: one["value"] for one in server["env"]}["ACPTERM_MCP_SOCKET"]


@asynccontextmanager
async def connected(path):
    stream = await trio.open_unix_socket(path)
    async with running(RpcClient(stream)) as client:
        yield client


async def initialize(client, **own):
    params = {"protocolVersion": 1, "_meta": {"acpterm": own}}
    return await client.request("initialize", params)


@asynccontextmanager
async def opened(tmp_path, *agent, cwd="/tmp", capabilities=None, **options):
    """Run a proxy with `--mcp` and open a session; yield the editor and the path of the socket."""
    options = {"mcp": McpOptions(), "log": str(tmp_path / "log"), **options}
    async with proxied(*agent, **options) as editor:
        await editor.open(cwd, **(capabilities or {}))
        (params,) = await editor.until(lambda: sent(tmp_path, "session/new"))
        yield editor, path_in(params)


async def sent_one(editor, tmp_path, method, number=0):
    """Wait until the agent was sent a request of `method`; return its params.

    `number` is the number of earlier requests to skip. The requests are read from the proxy's log,
    which is written with a delay.
    """
    return (await editor.until(lambda: sent(tmp_path, method)[number:]))[0]


async def start(client, command, **params):
    created = await client.request(
        "terminal/create", {"sessionId": "mcp", "command": command, **params}
    )
    return created["terminalId"]


def about(terminal, **params):
    return {"sessionId": "mcp", "terminalId": terminal, **params}


async def test_client_has_the_methods_of_agents_in_the_session(tmp_path):
    async with opened(tmp_path, cwd=str(tmp_path)) as (_, path), connected(path) as client:
        answer = await initialize(client)
        assert answer == {
            "protocolVersion": 1,
            "clientCapabilities": {
                "fs": {"readTextFile": False, "writeTextFile": False},
                "terminal": True,
                "_meta": {"acpterm": EXTENSIONS},
            },
            "clientInfo": {"name": "acpterm", "title": "acpterm", "version": __version__},
        }
        terminal = await start(client, "pwd; read x; echo got $x")
        await client.request("_acpterm/terminal/read", about(terminal, waitMs=10_000))
        await client.request("_acpterm/terminal/write", about(terminal, data="y\r"))
        await client.request("terminal/wait_for_exit", about(terminal))
        output = await client.request("terminal/output", about(terminal))
        assert output["output"] == f"{tmp_path}\ny\ngot y\n"
        listed = await client.request("_acpterm/terminal/list", {"sessionId": "mcp"})
        assert [one["sessionId"] for one in listed["terminals"]] == ["s1"]
        with pytest.raises(RpcError, match="no terminal"):
            await client.request("terminal/output", about("term_0"))


@pytest.mark.costly
@pytest.mark.parametrize(
    "method",
    [
        "_acpterm/session/open",
        "_acpterm/approval/answer",
        "_acpterm/approval/decline",
        "_acpterm/approver",
        "_acpterm/terminal/attach",
        "session/new",
        "shutdown",
    ],
)
async def test_client_has_no_other_methods(tmp_path, method):
    """The connection to the host may answer questions: the agent must not be able to use that."""
    async with opened(tmp_path) as (_, path), connected(path) as client:
        params = {"sessionId": "s1", "cwd": "/", "approvalId": "x", "decision": "allow"}
        with pytest.raises(RpcError, match=f"no method '{method}' here"):
            await client.request(method, params)


@pytest.mark.long
async def test_socket_is_private_and_removed_at_the_end(tmp_path, run_dir):
    async with opened(tmp_path) as (_, path):
        directory = os.path.dirname(path)
        assert os.path.dirname(directory) == run_dir
        assert os.stat(directory).st_mode & 0o777 == 0o700
        assert os.listdir(directory) == [os.path.basename(path)]
    assert os.listdir(run_dir) == []


async def test_peer_of_another_user_is_refused(tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(session_socket, "peer_of", lambda _: PeerCredentials(os.geteuid() + 1, 1))
    async with opened(tmp_path) as (_, path):
        stream = await trio.open_unix_socket(path)
        assert await stream.receive_some(1) == b""
        await stream.aclose()


async def test_sessions_have_sockets_of_their_own(tmp_path):
    async with opened(tmp_path) as (editor, path):
        await editor.request("session/new", {"cwd": "/tmp", "mcpServers": [OTHER]})
        other = path_in(await sent_one(editor, tmp_path, "session/new", 1))
        assert other != path
        async with connected(path) as one, connected(other) as two:
            terminal = await start(one, "exec sleep 60")
            await start(two, "exec sleep 60")
            listed = await two.request("_acpterm/terminal/list", {"sessionId": "s1"})
            assert [found["sessionId"] for found in listed["terminals"]] == ["s2"]
            with pytest.raises(RpcError, match="no terminal"):
                await two.request("terminal/kill", about(terminal))


async def test_client_that_disconnects_at_once_ends_nothing(tmp_path, monkeypatch):
    """As on macOS, `peer_of` fails for such a client: its user is no longer known."""
    real, failures = session_socket.peer_of, [OSError(57, "Socket is not connected")]

    def peer_of(sock):
        if failures:
            raise failures.pop()
        return real(sock)

    monkeypatch.setattr(session_socket, "peer_of", peer_of)
    async with opened(tmp_path) as (editor, path):
        async with await trio.open_unix_socket(path) as stream:
            assert await stream.receive_some(1) == b""
        async with connected(path) as client:
            await initialize(client)
        assert await editor.prompt(say("x")) == "end_turn"


async def test_number_of_connections_is_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(session_socket, "CLIENTS_MAX", 2)
    async with opened(tmp_path) as (_, path), connected(path) as one:
        async with connected(path) as two:
            for client in (one, two):
                await initialize(client)
            async with await trio.open_unix_socket(path) as stream:
                assert await stream.receive_some(1) == b""
            await initialize(one)

        # The end of `two` is noticed some time later. Until then, connections are closed.
        async def is_free():
            async with connected(path) as other:
                with suppress(EOFError, trio.BrokenResourceError):
                    await initialize(other)
                    return True
            return False

        with trio.fail_after(DEADLINE_S):
            while not await is_free():
                await trio.sleep(0.01)


@pytest.mark.costly
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_session_that_is_opened_again_keeps_its_socket(tmp_path, method):
    async with opened(tmp_path) as (editor, path):
        params = {"sessionId": "s1", "cwd": "/tmp", "mcpServers": []}
        await editor.request(method, params)
        assert path_in(await sent_one(editor, tmp_path, method)) == path
        await editor.request(method, {**params, "sessionId": "s7"})
        other = path_in(await sent_one(editor, tmp_path, method, 1))
        async with connected(path) as one, connected(other) as two:
            for client, session in ((one, "s1"), (two, "s7")):
                await start(client, "exec sleep 60")
                listed = await client.request("_acpterm/terminal/list", {"sessionId": "mcp"})
                assert [found["sessionId"] for found in listed["terminals"]] == [session]


# An agent that refuses to open sessions again; it answers session/load only when told to, and the
# second time as if it had opened the session.
REFUSING = r"""
import json, sys
waiting = []
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    method = message.get("method")
    if method == "initialize":
        send(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif method == "session/new":
        send(id=message["id"], result={"sessionId": "s1"})
    elif method == "session/resume":
        send(id=message["id"], error={"code": -32603, "message": "no such session"})
    elif method == "session/load":
        waiting.append(message["id"])
    elif method == "_go_on":
        send(id=waiting.pop(0), error={"code": -32603, "message": "no such session"})
        send(id=waiting.pop(0), result=%s)
"""


@pytest.fixture(params=["{}", "None", '{"sessionId": "another"}'])
def refusing(tmp_path, request):
    script = tmp_path / "refusing.py"
    script.write_text(REFUSING % request.param)
    return [sys.executable, "-S", str(script)]


async def test_socket_is_closed_if_a_session_is_not_opened_again(tmp_path, refusing):
    async with opened(tmp_path, *refusing) as (editor, path):
        directory = os.path.dirname(path)
        params = {"sessionId": "s7", "cwd": "/tmp", "mcpServers": []}
        for number in range(2):
            with pytest.raises(RpcError, match="no such session"):
                await editor.request("session/resume", params)
            other = path_in(await sent_one(editor, tmp_path, "session/resume", number))
            assert other != path
            await poll(lambda other=other: not os.path.exists(other))
        # That of a session which is open stays, with its terminals.
        async with connected(path) as client:
            pid, _ = await running_program(client, tmp_path)
            with pytest.raises(RpcError, match="no such session"):
                await editor.request("session/resume", {**params, "sessionId": "s1"})
            await client.request("_acpterm/terminal/list", {"sessionId": "mcp"})
            assert alive(pid)
        assert os.listdir(directory) == [os.path.basename(path)]


async def test_socket_stays_if_a_session_is_opened_by_the_second_of_two_requests(
    tmp_path, refusing
):
    async with opened(tmp_path, *refusing) as (editor, _):
        params = {"sessionId": "s7", "cwd": "/tmp", "mcpServers": []}
        first, second = [await editor.start("session/load", params) for _ in range(2)]
        await editor.notify("_go_on", {})
        with pytest.raises(RpcError, match="no such session"):
            await editor.result(first)
        await editor.result(second)
        path = path_in(await sent_one(editor, tmp_path, "session/load", 1))
        async with connected(path) as client:
            await start(client, "exec sleep 60")
            listed = await client.request("_acpterm/terminal/list", {"sessionId": "mcp"})
            # The session is the one that was asked for, whatever the agent answers.
            assert [found["sessionId"] for found in listed["terminals"]] == ["s7"]


# An agent that connects to the socket before it responds to session/new, and writes the answer.
EARLY = r"""
import json, socket, sys
def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)
for line in sys.stdin:
    message = json.loads(line)
    if message.get("method") == "initialize":
        send(id=message["id"], result={"protocolVersion": 1, "agentCapabilities": {}})
    elif message.get("method") == "session/new":
        env = message["params"]["mcpServers"][-1]["env"]
        sock = socket.socket(socket.AF_UNIX)
        sock.connect(env[0]["value"])
        stream = sock.makefile("rw")
        def ask(id_, method, **params):
            params["sessionId"] = "mcp"
            line = {"jsonrpc": "2.0", "id": id_, "method": method, "params": params}
            stream.write(json.dumps(line) + "\n")
            stream.flush()
        ask(1, "terminal/create", command="exec sleep 60")
        ask(2, "_acpterm/terminal/list")
        stream.write('{"jsonrpc":"2.0","method":"$/cancel_request","params":{"requestId":2}}\n')
        ask(3, "initialize", protocolVersion=1)
        answers = [json.loads(stream.readline()) for _ in range(2)]
        if sys.argv[1:]:
            send(id=message["id"], **json.loads(sys.argv[1]))
            answers.append(stream.readline())
        else:
            send(id=message["id"], result={"sessionId": "late"})
            answers.append(json.loads(stream.readline()))
            ask(4, "_acpterm/terminal/list")
            answers.append(json.loads(stream.readline()))
        send(method="_answers", params={"answers": answers})
"""


@pytest.fixture
def early(tmp_path):
    script = tmp_path / "early.py"
    script.write_text(EARLY)
    return [sys.executable, str(script)]


def answers_of(editor):
    return [one["params"]["answers"] for one in editor.messages if one.get("method") == "_answers"]


async def test_request_before_the_session_is_open_waits_for_its_id(tmp_path, early):
    async with opened(tmp_path, *early) as (editor, _):
        ((cancelled, initialized, created, listed),) = await editor.until(
            lambda: answers_of(editor)
        )
        assert (cancelled["id"], cancelled["error"]["code"]) == (2, -32800)
        assert (initialized["id"], initialized["result"]["protocolVersion"]) == (3, 1)
        assert created["id"] == 1
        assert "terminalId" in created["result"]
        (terminal,) = listed["result"]["terminals"]
        assert terminal["sessionId"] == "late"


@pytest.mark.parametrize(
    "response", [{"error": {"code": -32603, "message": "no session"}}, {"result": {}}]
)
async def test_socket_is_closed_if_the_session_is_not_opened(tmp_path, early, response):
    options = {"mcp": McpOptions(), "log": str(tmp_path / "log")}
    async with proxied(*early, json.dumps(response), **options) as editor:
        with pytest.raises((RpcError, KeyError), match=r"no session|sessionId"):
            await editor.open("/tmp")
        ((_, _, end),) = await editor.until(lambda: answers_of(editor))
        assert end == ""
        directory = os.path.dirname(path_in(await sent_one(editor, tmp_path, "session/new")))
        await poll(lambda: os.listdir(directory) == [])


# How terminals end


async def running_program(client, tmp_path, name="pid"):
    """Start a program that sleeps; return its pid and the terminal.

    The program writes its pid to the file `name`.
    """
    terminal = await start(client, f"echo $$ >{tmp_path}/{name}; exec sleep 60")
    file = tmp_path / name
    return int(await poll(lambda: (file.exists() and file.read_text().strip()) or None)), terminal


async def test_terminal_survives_the_turn_and_its_cancellation(tmp_path):
    async with opened(tmp_path) as (editor, path), connected(path) as client:
        pid, terminal = await running_program(client, tmp_path)
        own = f"echo $$ >{tmp_path}/own; exec sleep 60"
        turn = await editor.begin(create(own), {"do": "sleep", "seconds": 30})
        agents = int(
            await poll(
                lambda: ((tmp_path / "own").exists() and (tmp_path / "own").read_text()) or None
            )
        )
        await editor.notify("session/cancel", {"sessionId": "s1"})
        assert (await editor.result(turn))["stopReason"] == "cancelled"
        await editor.prompt(say("the next turn"))
        # The terminal that the agent has created itself ends, and this one does not.
        await poll(lambda: not alive(agents))
        assert "exitStatus" not in await client.request("terminal/output", about(terminal))
        assert alive(pid)


@pytest.mark.costly
@pytest.mark.parametrize("method", ["session/close", "session/delete"])
async def test_terminal_ends_with_the_session(tmp_path, method):
    async with opened(tmp_path) as (editor, path), connected(path) as client:
        pid, _ = await running_program(client, tmp_path)
        await editor.request(method, {"sessionId": "s1"})
        await client.closed.wait()
        await poll(lambda: not alive(pid))
        await poll(lambda: not os.path.exists(path))


async def test_terminal_ends_with_the_connection_of_its_server(tmp_path):
    async with opened(tmp_path) as (_, path), connected(path) as other:
        async with connected(path) as client:
            pid, terminal = await running_program(client, tmp_path)
            kept, _ = await running_program(other, tmp_path, "other")
            released, gone = await running_program(client, tmp_path, "released")
            await client.request("terminal/release", about(gone))
            await poll(lambda: not alive(released))
        await poll(lambda: not alive(pid))
        assert alive(kept)
        with pytest.raises(RpcError, match="has been released"):
            await other.request("terminal/output", about(terminal))


async def test_terminal_ends_with_the_proxy(tmp_path):
    async with opened(tmp_path) as (_, path), connected(path) as client:
        pid, _ = await running_program(client, tmp_path)
        promoted = await start(client, "exec sleep 60")
        await client.request("_acpterm/terminal/promote", about(promoted))
    await poll(lambda: not alive(pid))


class CrossingHost:
    """A host whose response to a create crosses the cancellation of the request."""

    def __init__(self):
        self.calls = []
        self.cancelled = []

    def call(self, method, params, on_response):
        self.calls.append((method, params, on_response))
        return len(self.calls)

    def cancel(self, id_):
        self.cancelled.append(id_)

    async def drain(self):
        await trio.lowlevel.checkpoint()


async def test_terminal_that_is_created_although_its_client_has_gone_is_released():
    host = CrossingHost()
    ours, theirs = trio.testing.memory_stream_pair()
    relay = SocketClient(theirs, host, EventRoutes(), None)
    relay.bind("s1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay.run)
        await RpcClient(ours).start("terminal/create", {"sessionId": "mcp", "command": "x"})
        await poll(lambda: host.calls)
        await ours.aclose()
    assert host.cancelled == [1]
    ((_, params, on_response),) = host.calls
    assert params["sessionId"] == "s1"
    on_response(Raw(b'{"terminalId":"term_1"}'))
    method, released, _ = host.calls[1]
    assert (method, released.session_id, released.terminal_id) == (
        "terminal/release",
        "s1",
        "term_1",
    )


async def test_terminal_that_was_released_by_its_name_is_not_counted():
    host = CrossingHost()
    ours, theirs = trio.testing.memory_stream_pair()
    relay = SocketClient(theirs, host, EventRoutes(), None)
    relay.bind("s1")
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay.run)
        client = RpcClient(ours)
        for terminal in ("term_1", "term_2", "term_3"):
            await client.start("terminal/create", {"sessionId": "mcp", "command": "x"})
            await poll(lambda: bool(host.calls))
            name = "web" if terminal != "term_3" else "other"
            created = {"terminalId": terminal, "_meta": {"acpterm": {"name": name}}}
            host.calls.pop()[2](Raw(msgspec.json.encode(created)))
        # The host releases the latest terminal with the name.
        for name, left in (("web", ["term_1", "term_3"]), ("term_1", ["term_3"]), ("other", [])):
            await client.start("terminal/release", about(name))
            await poll(lambda: bool(host.calls))
            host.calls.pop()[2](Raw(b"{}"))
            assert list(relay.terminals) == left
        await ours.aclose()


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "not open yet"])
async def test_second_pending_request_without_an_id_is_refused(is_open):
    host, routes = CrossingHost(), EventRoutes()
    ours, theirs = trio.testing.memory_stream_pair()
    relay = SocketClient(theirs, host, routes, None)
    if is_open:
        relay.bind("s1")
    request = {"jsonrpc": "2.0", "id": None, "method": "_acpterm/events"}
    line = json.dumps({**request, "params": {"sessionId": "mcp", "token": "t"}}).encode() + b"\n"
    async with trio.open_nursery() as nursery:
        nursery.start_soon(relay.run)
        await ours.send_all(line + line)
        with trio.fail_after(DEADLINE_S):
            answer = json.loads(await ours.receive_some())
        assert "a request with the id null is pending" in answer["error"]["message"]
        assert len(host.calls) == int(is_open)
        await ours.aclose()
    assert routes._routes == {}


async def test_pending_request_is_cancelled_by_its_client(tmp_path):
    async with opened(tmp_path) as (_, path), connected(path) as client:
        terminal = await start(client, "exec sleep 60")
        waiting = await client.start("terminal/wait_for_exit", about(terminal))
        await client.cancel(waiting)
        with pytest.raises(RpcError, match="cancelled"):
            await client.result(waiting)


# Events, questions, profiles


async def test_events_come_with_the_token_of_the_client(tmp_path):
    async with opened(tmp_path) as (editor, path), connected(path) as one, connected(path) as two:
        for client in (one, two):
            await client.start("_acpterm/events", {"sessionId": "mcp", "token": "t"})
        await editor.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        other = path_in(await sent_one(editor, tmp_path, "session/new", 1))
        async with connected(other) as elsewhere:
            terminal = await start(one, "true")
            await start(elsewhere, "true")
            for client in (one, two):
                await client.until(
                    lambda client=client: [
                        message
                        for message in client.messages
                        if message.get("params", {}).get("event") == "exited"
                    ]
                )
                params = [found["params"] for found in client.messages if "method" in found]
                assert {found["token"] for found in params} == {"t"}
                assert {found["terminal"]["terminalId"] for found in params} == {terminal}
        assert not [found for found in editor.messages if found.get("method") == "_acpterm/event"]


async def test_user_is_asked_about_the_commands_of_the_server(tmp_path):
    settings = asking_settings()
    async with opened(tmp_path, settings=settings) as (editor, path), connected(path) as client:
        editor.on_request = lambda _: {
            "outcome": {"outcome": "selected", "optionId": "reject_once"}
        }
        with pytest.raises(RpcError, match="user has refused"):
            await start(client, "echo ask-first")
        (request,) = [
            one for one in editor.messages if one.get("method") == "session/request_permission"
        ]
        assert request["params"]["sessionId"] == "s1"


STRICT = {"profiles": {"strict": ProfileTable(safe_commands=["true"], unknown="deny")}}


async def test_profile_of_the_proxy_applies_and_no_other_can_be_requested(tmp_path):
    options = {
        "settings": {**STRICT, "rules": "/dev/null"},
        "profile": "strict",
        "mcp": McpOptions(profile="strict"),
    }
    async with opened(tmp_path, **options) as (_, path), connected(path) as client:
        await initialize(client, profile="strict")
        with pytest.raises(RpcError, match="in the profile 'strict'"):
            await start(client, "date")
        with pytest.raises(RpcError, match="--profile before --mcp"):
            await initialize(client, profile="open")


async def test_server_has_terminals_if_the_agents_are_the_editors(tmp_path):
    capabilities = {"terminal": True}
    async with (
        opened(tmp_path, capabilities=capabilities) as (editor, path),
        connected(path) as client,
    ):
        pid, _ = await running_program(client, tmp_path)
        editor.on_request = lambda _: {"terminalId": "the editor's"}
        await editor.prompt({**create("true"), "report": True})
        assert editor.texts_sent == ['{"terminalId": "the editor\'s"}']
        assert alive(pid)


async def test_nothing_is_added_without_the_option(tmp_path):
    async with proxied(log=str(tmp_path / "log")) as editor:
        await editor.open("/tmp")
        await editor.prompt(say("x"))
    assert sent(tmp_path, "session/new") == [{"cwd": "/tmp", "mcpServers": []}]


async def test_agent_keeps_its_own_terminals(tmp_path):
    async with opened(tmp_path) as (editor, _):
        await editor.prompt(create("echo x"), of("wait_for_exit"), of("output", report=True))
        assert json.loads(editor.texts_sent[0])["output"] == "x\n"


@pytest.mark.long
async def test_terminals_survive_the_worker_and_are_shown_to_the_user(tmp_path, run_dir):
    log = tmp_path / "log"
    options = ["--mcp", "--log", str(log)]
    async with (
        daemon(tmp_path) as running_daemon,
        editor_of(tmp_path, running_daemon.path, options=options) as editor,
    ):
        await editor.open("/tmp")
        (params,) = await editor.until(lambda: sent(tmp_path, "session/new"))
        async with connected(path_in(params)) as client:
            pid, terminal = await running_program(client, tmp_path)
            await running_daemon.kill_worker()
            output = await client.request("terminal/output", about(terminal))
            assert output["output"] == ""
            assert alive(pid)
            async with user_at(running_daemon.user_path) as user:
                (found,) = await user.list()
                assert (found["sessionId"], found["agent"]) == ("s1", "scripted")
    await poll(lambda: not alive(pid))
    assert os.listdir(run_dir) == []
