"""`proxy --mcp` and `prompt --mcp`: an agent on the official SDKs uses `acpterm mcp`."""

import json
import os
import sys
import tempfile
from pathlib import Path

import pytest
import trio

from tests.support.commands import command_environment, run, run_with
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.mcp import PATIENT, variables
from tests.support.polling import poll
from tests.support.processes import alive
from tests.support.proxies import editor_of
from tests.support.user import user_at

pytestmark = pytest.mark.long

AGENT = [sys.executable, str(Path(__file__).with_name("sdk_agent.py"))]
PATIENT_VARIABLES = variables(PATIENT)


@pytest.fixture(autouse=True)
def run_dir(monkeypatch):
    """Yield a new runtime directory of the user; in `tmp_path`, sockets may have too long paths."""
    with tempfile.TemporaryDirectory() as directory:
        monkeypatch.setenv("XDG_RUNTIME_DIR", directory)
        yield directory


@pytest.fixture
async def open_daemon(tmp_path):
    async with daemon(tmp_path, settings={"profile": "open"}) as running:
        yield running


def proxied(tmp_path, path, *arguments, options=()):
    words = [*AGENT, *arguments]
    return editor_of(tmp_path, path, *words, options=["--mcp", *options], **PATIENT_VARIABLES)


async def call(editor, *calls):
    """Let the agent call tools; return the results, each a list of blocks."""
    before = len(editor.texts_sent)
    prompt = [{"type": "text", "text": json.dumps(calls)}]
    await editor.request("session/prompt", {"sessionId": editor.session, "prompt": prompt})
    return [json.loads(text) for text in editor.texts_sent[before:]]


async def listed(path):
    return json.loads((await run(path, "ls", "--json")).out)


@pytest.mark.exhaustive
async def test_terminals_of_the_tools_belong_to_the_session(tmp_path, open_daemon, run_dir):
    path = open_daemon.path
    async with proxied(tmp_path, path) as editor:
        await editor.open(str(tmp_path))
        (blocks,) = await call(editor, ["terminal_start", {"command": "pwd; exec cat"}])
        assert blocks[-1] == (
            "Terminal Session Started\n"
            "Terminal Id: term-1\n"
            "Sent Command: pwd; exec cat\n"
            "\n"
            "Output:\n"
            f"{tmp_path}\n"
        )
        # The turn is over, and the next one goes on with the same terminal.
        (blocks,) = await call(
            editor, ["terminal_continue", {"sessionId": "term-1", "stdin": "hi\n"}]
        )
        assert "hi\nhi\n" in blocks[-1]
        (terminal,) = await listed(path)
        assert (terminal["name"], terminal["sessionId"]) == ("term-1", editor.session)
        assert (terminal["owner"], terminal["agent"]) == ("agent", "mcp-agent")
        # The user sees and uses it in the chat, too.
        prompt = [{"type": "text", "text": "/terminal list"}]
        await editor.request("session/prompt", {"sessionId": editor.session, "prompt": prompt})
        assert "term-1       | pwd; exec cat" in editor.texts_sent[-1]
        pid = terminal["pid"]
    await poll(lambda: not alive(pid))
    assert os.listdir(run_dir) == []


async def test_terminals_of_the_tools_end_with_their_session(tmp_path, open_daemon):
    path = open_daemon.path
    async with proxied(tmp_path, path) as editor:
        await editor.open("/tmp")
        first = editor.session
        await call(editor, ["terminal_start", {"command": "exec cat -u"}])
        opened = await editor.request("session/new", {"cwd": "/tmp", "mcpServers": []})
        editor.session = opened["sessionId"]
        await call(editor, ["terminal_start", {"command": "exec cat -v"}])
        found = {one["sessionId"]: one for one in await listed(path)}
        assert set(found) == {first, editor.session}
        assert {one["name"] for one in found.values()} == {"term-1", "term-2"}
        await editor.request("session/close", {"sessionId": first})
        await poll(lambda: not alive(found[first]["pid"]))
        assert [one["sessionId"] for one in await listed(path)] == [editor.session]
        (blocks,) = await call(editor, ["terminal_list", {}])
        assert "exec cat -v" in blocks[-1]
        assert "exec cat -u" not in blocks[-1]


@pytest.mark.exhaustive
async def test_tool_that_is_called_before_the_session_is_open_waits(tmp_path, open_daemon):
    path = open_daemon.path
    async with proxied(tmp_path, path, "--early") as editor:
        await editor.open("/tmp")
        with trio.fail_after(DEADLINE_S):
            while not (found := await listed(path)):
                await trio.sleep(0.1)
        assert [one["sessionId"] for one in found] == [editor.session]


@pytest.mark.exhaustive
async def test_servers_of_the_editor_are_kept_and_the_tools_are_chosen(tmp_path, open_daemon):
    other = {"name": "other", "command": "/bin/false", "args": [], "env": []}
    async with proxied(tmp_path, open_daemon.path, options=["--tools", "codex"]) as editor:
        await editor.open("/tmp")
        (blocks,) = await call(editor, ["exec_command", {"cmd": "echo $((6 * 7))"}])
        assert "42" in blocks[-1]
        params = {"cwd": "/tmp", "mcpServers": [{**other, "name": "first"}, other]}
        editor.session = (await editor.request("session/new", params))["sessionId"]
        prompt = [{"type": "text", "text": "servers"}]
        await editor.request("session/prompt", {"sessionId": editor.session, "prompt": prompt})
        assert json.loads(editor.texts_sent[-1]) == ["first", "other", "acpterm"]


async def test_terminal_survives_a_worker_that_is_killed(tmp_path, open_daemon):
    async with proxied(tmp_path, open_daemon.path) as editor:
        await editor.open("/tmp")
        await call(editor, ["terminal_start", {"command": "exec cat"}])
        await open_daemon.kill_worker()
        (blocks,) = await call(
            editor, ["terminal_continue", {"sessionId": "term-1", "stdin": "hi\n"}]
        )
        assert "hi\nhi\n" in blocks[-1]


async def test_prompt_gives_the_agent_the_tools(tmp_path, open_daemon, run_dir):
    calls = [["terminal_start", {"command": "echo $((6 * 7)); exec cat"}]]
    words = ["prompt", "--mcp", "--json", json.dumps(calls), "--", *AGENT]
    env = command_environment(open_daemon.path, **PATIENT_VARIABLES, XDG_RUNTIME_DIR=run_dir)
    done = await run_with(words, env=env)
    assert done.status == 0, done.err
    events = [json.loads(line) for line in done.out.splitlines()]
    text = "".join(
        event["update"]["content"]["text"]
        for event in events
        if event["event"] == "update" and "content" in event["update"]
    )
    assert "Output:\n42" in json.loads(text)[-1]
    async with user_at(open_daemon.user_path) as user:
        with trio.fail_after(DEADLINE_S):
            while await user.list():
                await trio.sleep(0.02)
    assert os.listdir(run_dir) == []


@pytest.mark.parametrize("command", ["proxy", "prompt"])
@pytest.mark.parametrize(
    ("options", "why"),
    [(["--tools", "codex"], "add --mcp"), (["--mcp", "--tools", "pool"], "add --profile pool")],
)
async def test_options_that_do_not_fit_are_refused(tmp_path, command, options, why):
    done = await run(str(tmp_path / "agent.sock"), command, "x", *options, "--", "true")
    if command == "proxy":
        done = await run(str(tmp_path / "agent.sock"), command, *options, "--", "true")
    assert done.status == 2
    assert why in done.err


async def test_agent_that_ignores_the_tools_is_named(tmp_path):
    agent = str(tmp_path / "copilot")
    done = await run(str(tmp_path / "agent.sock"), "proxy", "--mcp", "--", agent)
    assert "acpterm setup copilot" in done.err
