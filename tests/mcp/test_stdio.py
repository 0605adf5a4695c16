"""`acpterm mcp` as a process, with the official client on its stdin and stdout."""

import json
import resource
import subprocess
import sys
from pathlib import Path

import mcp
import mcp_types as types
import pytest
import trio
from mcp.client.stdio import StdioServerParameters

from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.mcp import PATIENT, result_of, variables
from tests.support.processes import environment
from tests.support.user import user_at


def parameters(tmp_path, path: str, *arguments: str) -> StdioServerParameters:
    env = environment(XDG_CONFIG_HOME=str(tmp_path / "none"), ACPTERM_PROFILE="open")
    env |= variables(PATIENT)
    return StdioServerParameters(
        command=sys.executable,
        args=["-m", "acpterm", "mcp", "--socket", path, *arguments],
        env=env,
        cwd=str(tmp_path),
    )


async def call(client: mcp.Client, name: str, **arguments):
    return result_of(await client.call_tool(name, arguments))


@pytest.mark.long
@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_client_on_stdio_uses_a_terminal(tmp_path, mode):
    async with daemon(tmp_path) as running:
        server = parameters(tmp_path, running.path)
        async with mcp.Client(
            server, mode=mode, client_info=types.Implementation(name="my-agent", version="1")
        ) as client:
            started = await call(client, "terminal_start", command="cat")
            assert started.data["cwd"] == str(tmp_path)
            result = await call(client, "terminal_continue", sessionId="term-1", stdin="hi\n")
            assert result.data["output"] == "hi\nhi\n"
            async with user_at(running.user_path) as user:
                (terminal,) = (await user.request("terminal/list"))["terminals"]
                assert terminal["name"] == "term-1"
                assert terminal["owner"] == "agent"
        # Its terminals end with the client.
        async with user_at(running.user_path) as user:

            async def remaining() -> int:
                return len((await user.request("terminal/list"))["terminals"])

            with trio.fail_after(DEADLINE_S):
                while await remaining():
                    await trio.sleep(0.02)


@pytest.mark.long
async def test_pool_on_stdio_uses_the_profile_pool(tmp_path):
    async with daemon(tmp_path) as running:
        server = parameters(tmp_path, running.path, "--tools", "pool")
        async with mcp.Client(server, mode="legacy") as client:
            result = await call(client, "spawn_background_terminal", command=["rm", "x"], cwd="/")
    assert result.blocks == ["Command blocked for security reasons"]


@pytest.mark.long
async def test_profile_of_the_environment_makes_the_connection_stricter(tmp_path):
    home = tmp_path / "none" / "acpterm"
    home.mkdir(parents=True)
    home.joinpath("config.toml").write_text('[profiles.tight]\nunknown = "deny"\n')
    env = environment(XDG_CONFIG_HOME=str(home.parent), ACPTERM_PROFILE="open")
    async with daemon(tmp_path, env=env) as running:
        server = parameters(tmp_path, running.path)
        assert server.env is not None
        server.env["ACPTERM_PROFILE"] = "tight"
        async with mcp.Client(server, mode="legacy") as client:
            result = await call(client, "terminal_bash", command="unheard-of")
    assert "in the profile 'tight'" in result.text


@pytest.mark.long
async def test_worker_that_is_replaced_is_not_noticed(tmp_path):
    async with (
        daemon(tmp_path) as running,
        mcp.Client(parameters(tmp_path, running.path), mode="legacy") as client,
    ):
        await call(client, "terminal_start", command="cat")
        await running.kill_worker()
        result = await call(client, "terminal_continue", sessionId="term-1", stdin="hi\n")
    assert result.data["output"] == "hi\nhi\n"


@pytest.mark.long
async def test_daemon_that_has_ended_is_started_again_by_the_next_call(tmp_path):
    async with daemon(tmp_path, terminate=True) as running:
        client = mcp.Client(parameters(tmp_path, running.path), mode="legacy")
        await client.__aenter__()
        await call(client, "terminal_start", command="cat")
    try:
        lost = await call(client, "terminal_list")
        again = await call(client, "terminal_start", command="echo back")
        async with user_at(running.user_path) as user:
            await user.request("shutdown")
    finally:
        await client.__aexit__(None, None, None)
    assert lost.is_error
    assert "its terminals have ended" in lost.text
    assert again.data["output"] == "back\n"


def spawn(tmp_path, path: str, *prefix: str) -> subprocess.Popen:
    server = parameters(tmp_path, path)
    return subprocess.Popen(
        [*prefix, server.command, *server.args],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=server.env,
        cwd=server.cwd,
    )


def request(identifier: int, method: str, **params) -> bytes:
    message = {"jsonrpc": "2.0", "id": identifier, "method": method, "params": params}
    return json.dumps(message).encode() + b"\n"


INITIALIZE = request(
    1,
    "initialize",
    protocolVersion="2025-06-18",
    capabilities={},
    clientInfo={"name": "raw", "version": "1"},
)


def test_server_starts_in_a_directory_that_is_gone(tmp_path):
    gone = tmp_path / "gone"
    gone.mkdir()
    script = 'cd "$1" && rmdir "$1" && shift && exec "$@"'
    with spawn(
        tmp_path, str(tmp_path / "none.sock"), "sh", "-c", script, "sh", str(gone)
    ) as process:
        out, err = process.communicate(INITIALIZE, timeout=30)
    assert json.loads(out)["result"]["serverInfo"]["name"] == "acpterm", err


@pytest.mark.long
def test_line_that_is_no_message_is_answered_with_an_error(tmp_path):
    nested = "[" * 20_000
    lines = [
        b"garbage",
        b"",
        rb'{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"\ud800"}}',
        b'{"jsonrpc":"2.0","id":"deep","method":"tools/call","params":' + nested.encode(),
        b"[]",
        b'{"jsonrpc":"2.0","id":1.5,"method":"tools/list"}',
    ]
    data = b"\n".join(lines) + b"\n" + INITIALIZE
    with spawn(tmp_path, str(tmp_path / "none.sock")) as process:
        answers = [
            json.loads(line) for line in process.communicate(data, timeout=30)[0].splitlines()
        ]
    errors = [(answer["id"], answer["error"]["code"]) for answer in answers if "error" in answer]
    assert errors == [
        *((None, -32700), (7, -32700), (None, -32700)),
        *((None, -32600), (None, -32600)),
    ]
    assert process.returncode == 0


@pytest.mark.long
async def test_client_that_closes_both_pipes_in_a_call_leaves_no_error(tmp_path):
    async with daemon(tmp_path) as running, user_at(running.user_path) as user:
        with spawn(tmp_path, running.path) as process:
            process.stdin.write(INITIALIZE)
            process.stdin.flush()
            await trio.to_thread.run_sync(process.stdout.readline)
            process.stdin.write(b'{"jsonrpc":"2.0","method":"notifications/initialized"}\n')
            arguments = {"command": "sleep 60"}
            process.stdin.write(request(2, "tools/call", name="terminal_bash", arguments=arguments))
            process.stdin.flush()
            with trio.fail_after(DEADLINE_S):
                while not (await user.request("terminal/list"))["terminals"]:
                    await trio.sleep(0.02)
            process.stdout.close()
            process.stdin.write(b"garbage\n")
            process.stdin.close()
            stderr = await trio.to_thread.run_sync(process.stderr.read)
            status = await trio.to_thread.run_sync(process.wait)
    assert (status, stderr) == (0, b"")


@pytest.mark.long
def test_requests_before_the_end_of_stdin_are_answered(tmp_path):
    requests = b"".join(request(number, "tools/list") for number in range(2, 12))
    with spawn(tmp_path, str(tmp_path / "none.sock")) as process:
        out, _ = process.communicate(INITIALIZE + requests, timeout=30)
    assert [json.loads(line)["id"] for line in out.splitlines()] == [*range(1, 12)]


@pytest.mark.long
def test_client_that_only_closes_stdout_ends_the_server(tmp_path):
    with spawn(tmp_path, str(tmp_path / "none.sock")) as process:
        process.stdin.write(INITIALIZE)
        process.stdin.flush()
        process.stdout.readline()
        process.stdout.close()
        process.stdin.write(request(2, "tools/list"))
        process.stdin.flush()
        try:
            assert process.wait(DEADLINE_S) == 0
        finally:
            process.kill()
        assert process.stderr.read() == b""


def test_server_needs_no_extra():
    absent = "'mcp', 'mcp_types', 'pydantic', 'starlette', 'wsproto', 'h11'"
    script = (
        "import sys\n"
        f"sys.modules |= dict.fromkeys([{absent}])\n"  # importing them fails
        "sys.argv = ['acpterm', 'mcp']\n"
        "from acpterm.cli.main import main\n"
        "main()\n"
    )
    result = subprocess.run(
        [sys.executable, "-c", script],
        check=False,
        capture_output=True,
        text=True,
        env=environment(),
        input="[]\n" + (INITIALIZE + request(2, "tools/list")).decode(),
        timeout=30,
    )
    assert result.stderr == ""
    batch, _, tools = map(json.loads, result.stdout.splitlines())
    assert "a batch is not a message: send each message on a line of its own" in str(batch)
    assert "terminal_bash" in str(tools["result"])


MEMORY_MAX_KB = 35_000
# Of the time in which Python imports the official SDK.
START_MAX = 0.35


def cpu_seconds(work) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    work()
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


@pytest.mark.long
def test_start_takes_little_time_and_memory(tmp_path):
    # Processor time, since other processes may keep this one waiting. The least of three runs of
    # each, or of more on a busy machine, where all three may cost too much.
    def start() -> None:
        with spawn(tmp_path, str(tmp_path / "none.sock")) as process:
            assert process.communicate(INITIALIZE, timeout=30)[0]

    def import_sdk() -> None:
        subprocess.run([sys.executable, "-c", "import mcp"], check=True)

    starts = [cpu_seconds(start) for _ in range(3)]
    imports = [cpu_seconds(import_sdk) for _ in range(3)]
    while min(starts) > START_MAX * min(imports) and len(starts) < 10:
        starts.append(cpu_seconds(start))
        imports.append(cpu_seconds(import_sdk))
    assert min(starts) <= START_MAX * min(imports)

    with spawn(tmp_path, str(tmp_path / "none.sock")) as process:
        process.stdin.write(INITIALIZE + request(2, "tools/list"))
        process.stdin.flush()
        answers = [json.loads(process.stdout.readline()) for _ in range(2)]
        rollup = Path(f"/proc/{process.pid}/smaps_rollup").read_text()
        process.communicate(timeout=30)
    assert len(answers[1]["result"]["tools"]) == 8
    (resident,) = (int(line.split()[1]) for line in rollup.splitlines() if line.startswith("Rss:"))
    assert resident <= MEMORY_MAX_KB
