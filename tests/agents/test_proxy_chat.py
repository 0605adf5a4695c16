"""Prompts that begin with `/terminal`: acpterm answers them, and the agent sees nothing of them."""

import json
import sys

import pytest
import trio

from acpterm.agents.proxy import chat
from acpterm.jsonrpc import RpcError
from acpterm.providers.provider import NAMES
from tests.acp.validate import validate_sent
from tests.support.commands import run
from tests.support.daemon import daemon
from tests.support.depth import DEADLINE_S
from tests.support.editor import create, proxied, say
from tests.support.polling import poll
from tests.support.proxies import editor_of

PERMISSION = "session/request_permission"
TABLE = """\
Active Terminal Sessions:
ID           | Command                        | Position | Running | Uptime
-------------|--------------------------------|----------|---------|--------
"""
WAITS = "echo ready; read x; echo got $x; exec sleep 60"


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    """Shorten the minimum time for which `/terminal` waits for output, to make the tests fast."""
    monkeypatch.setenv("ACPTERM_TOOL_MIN_INTERVAL", "0.2")


@pytest.fixture
def patient_chat(monkeypatch):
    """Let `/terminal` wait for the output of a silent program for longer than a test takes."""
    for name in ("SETTLE", "MAX"):
        monkeypatch.setenv(f"ACPTERM_TOOL_{name}_INTERVAL", "60")


def text(content):
    return {"type": "text", "text": content}


def link(uri):
    return {"type": "resource_link", "name": "a file", "uri": uri}


async def begin(editor, *blocks):
    prompt = [text(block) if isinstance(block, str) else block for block in blocks]
    return await editor.start("session/prompt", {"sessionId": editor.session, "prompt": prompt})


async def ask(editor, *blocks):
    """Send a prompt; return its stop reason, and the text of the answer without the fence."""
    before = len(editor.texts_sent)
    result = await editor.result(await begin(editor, *blocks))
    (answer,) = editor.texts_sent[before:]
    first, *lines, last = answer.split("\n")
    assert (first, last) == ("```", "```")
    return result["stopReason"], "\n".join(lines)


async def answer(editor, *blocks):
    reason, found = await ask(editor, *blocks)
    assert reason == "end_turn"
    return found


async def created(editor, name):
    """Wait until a terminal is listed: before, its program may run, but the create may yet fail."""
    with trio.fail_after(DEADLINE_S):
        while name not in await answer(editor, "/terminal list"):
            await trio.sleep(0.01)


def commands(editor):
    return [
        [command["name"] for command in update["availableCommands"]]
        for update in editor.updates
        if update["sessionUpdate"] == "available_commands_update"
    ]


def announce(*names):
    listed = [{"name": name, "description": "…", "_meta": {"of": "agent"}} for name in names]
    return {
        "do": "update",
        "update": {"sessionUpdate": "available_commands_update", "availableCommands": listed},
    }


@pytest.mark.long
async def test_terminal_is_started_used_and_stopped(tmp_path):
    async with proxied(log=str(tmp_path / "log")) as editor:
        await editor.open(str(tmp_path))
        assert await answer(editor, "/terminal list") == "No active terminal sessions."
        assert await answer(editor, f"/terminal start pwd; {WAITS}") == (
            "Terminal Session Started\n"
            "Terminal Id: term-1\n"
            f"Sent Command: pwd; {WAITS}\n"
            "\n"
            "Output:\n"
            f"{tmp_path}\n"
            "ready"
        )
        table = await answer(editor, "/terminal list")
        assert table.startswith(f"{TABLE}term-1       | pwd; echo ready; read x; echo… | ")
        assert "Terminal Id: term-2\n" in await answer(editor, "/terminal start exit 3")
        sent = await answer(editor, "/terminal send term-1 y")
        assert sent.startswith("Terminal Session: term-1\n\nOutput:\ny\ngot y")
        assert await answer(editor, "/terminal output term-1") == (
            f"Terminal Session: term-1\nComplete Output:\n{tmp_path}\nready\ny\ngot y\n"
        )
        stopped = "Terminal session term-1 terminated."
        assert await answer(editor, "/terminal stop term-1") == stopped
        assert "no terminal 'term-1'" in await answer(editor, "/terminal output term-1")
        for message in editor.messages:
            if "method" in message:
                validate_sent(message, {})
    # The agent has received none of the prompts.
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    to_agent = [line["msg"]["method"] for line in lines if line["dir"] == "proxy->agent"]
    assert to_agent == ["initialize", "session/new"]


@pytest.mark.costly
@pytest.mark.parametrize(
    "prompt",
    ["/terminals", "/terminal-x", "see /terminal list", "//terminal list", "/ terminal list", ""],
)
async def test_other_prompts_reach_the_agent(prompt):
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.result(await begin(editor, prompt))
        assert editor.texts_sent == [f"You said: {prompt}"]


async def test_prompt_reaches_the_agent_without_chat():
    async with proxied(chat=False) as editor:
        await editor.open("/tmp")
        await editor.result(await begin(editor, "/terminal list"))
        assert editor.texts_sent == ["You said: /terminal list"]
        assert commands(editor) == []


@pytest.mark.costly
@pytest.mark.parametrize(
    ("blocks", "command"),
    [
        (["/terminal ", "start", " true"], "true"),
        (["\n /terminal start true"], "true"),
        # Named by the user in the text: its path.
        (
            ["/terminal start test -e ", link("file:///tmp/a%20b"), " -o 1"],
            "test -e '/tmp/a b' -o 1",
        ),
        (
            [
                "/terminal start test -e ",
                {"type": "resource", "resource": {"uri": "file:///tmp/a", "text": "x"}},
            ],
            "test -e /tmp/a",
        ),
        # Added by the editor: left out.
        ([link("file:///tmp/a"), "/terminal start true", link("file:///tmp/b")], "true"),
        (["/terminal start true ", link("https://example.org/a")], "true"),
        (["/terminal start true ", {"type": "image", "data": "", "mimeType": "image/png"}], "true"),
        ([{"type": "unknown"}, "/terminal start true"], "true"),
    ],
)
async def test_prompt_of_several_blocks_is_one_line(blocks, command):
    async with proxied() as editor:
        await editor.open("/tmp")
        assert f"Sent Command: {command}\n" in await answer(editor, *blocks)


@pytest.mark.parametrize(
    ("prompt", "why"),
    [
        ("/terminal", "/terminal list  "),
        ("/terminal frobnicate", "there is no action 'frobnicate'"),
        ("/terminal stop x", "there is no terminal 'x'"),
        ("/terminal provider set x", "there is no provider 'x': there are local, "),
    ],
)
async def test_error_is_the_answer(prompt, why):
    async with proxied() as editor:
        await editor.open("/tmp")
        assert (await answer(editor, prompt)).startswith(why)


async def test_answer_is_no_markup_and_hides_nothing():
    async with proxied() as editor:
        await editor.open("/tmp")
        await begin(editor, "/terminal start printf '````\\n\\u202e# x\\n'")
        (found,) = await editor.until(lambda: editor.texts_sent)
        assert found.startswith("`````\nTerminal Session Started\n")
        assert found.endswith("Output:\n````\n\\u202e# x\n[exited with 0]\n`````")


async def test_large_output_is_complete():
    async with proxied() as editor:
        await editor.open("/tmp")
        await answer(editor, "/terminal start seq 50000")
        await editor.result(await begin(editor, "/terminal output term-1"))
        parts = editor.texts_sent[1:]
        assert len(parts) > 1
        lines = "".join(parts).split("\n")
        assert lines[3:-2] == [str(number) for number in range(1, 50001)]


async def test_prompt_is_answered_during_a_turn():
    async with proxied() as editor:
        await editor.open("/tmp")
        turn = await editor.begin(say("before"), {"do": "sleep", "seconds": 30}, say("after"))
        await editor.until(lambda: editor.texts_sent)
        await editor.result(await begin(editor, "/terminal list"))
        assert not editor.has_response(turn)
        # The editor appends it to the agent's text.
        assert editor.texts_sent[1] == "\n\n```\nNo active terminal sessions.\n```\n\n"
        await editor.notify("session/cancel", {"sessionId": editor.session})
        assert (await editor.result(turn))["stopReason"] == "cancelled"


@pytest.mark.costly
@pytest.mark.parametrize("how", ["session/cancel", "$/cancel_request"])
async def test_cancelled_prompt_leaves_its_terminal_and_the_agent_alone(
    how, tmp_path, patient_chat
):
    async with proxied("--stubborn", log=str(tmp_path / "log")) as editor:
        await editor.open("/tmp")
        await editor.prompt(create("exec sleep 60"))
        id_ = await begin(editor, "/terminal start exec sleep 60")
        await created(editor, "term-1")
        is_session = how == "session/cancel"
        await editor.notify(
            how, {"sessionId": editor.session} if is_session else {"requestId": id_}
        )
        assert (await editor.result(id_))["stopReason"] == "cancelled"
        listed = await answer(editor, "/terminal list")
        assert "| Yes     |" in listed.split("term-1")[1]
    lines = [json.loads(line) for line in (tmp_path / "log").read_text().splitlines()]
    assert how not in [line["msg"].get("method") for line in lines if line["dir"] == "proxy->agent"]


async def test_pending_prompt_is_answered_when_the_agent_exits(patient_chat):
    async with proxied() as editor:
        await editor.open("/tmp")
        waiting = await begin(editor, "/terminal start sleep 60")
        turn = await editor.begin({"do": "exit", "code": 3})
        for id_ in (waiting, turn):
            with pytest.raises(Exception, match="exited"):
                await editor.result(id_)


@pytest.mark.long
async def test_unexpected_error_ends_only_its_prompt(monkeypatch):
    async def fail(*_):
        raise OSError(24, "Too many open files")

    async with proxied() as editor:
        await editor.open("/tmp")
        with monkeypatch.context() as patch:
            patch.setattr(chat, "run_steps", fail)
            with pytest.raises(RpcError, match="/terminal has failed: Too many open files"):
                await editor.result(await begin(editor, "/terminal list"))
        assert await answer(editor, "/terminal list") == "No active terminal sessions."


async def test_prompt_is_cancelled_when_its_session_is_closed(tmp_path, patient_chat):
    async with proxied() as editor:
        await editor.open("/tmp")
        id_ = await begin(editor, f"/terminal start touch {tmp_path}/ran; exec sleep 60")
        await poll((tmp_path / "ran").exists)
        await editor.request("session/close", {"sessionId": editor.session})
        with trio.fail_after(DEADLINE_S):
            assert (await editor.result(id_))["stopReason"] == "cancelled"


# The list of commands


async def test_command_is_announced_if_the_agent_announces_none():
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.until(lambda: commands(editor))
        response, announced = editor.messages[1:]
        assert response["result"] == {"sessionId": "s1"}
        validate_sent(announced, {})
        (command,) = announced["params"]["update"]["availableCommands"]
        assert command["name"] == "terminal"
        assert command["input"]["hint"].startswith("list | start <command> | ")


@pytest.mark.costly
@pytest.mark.parametrize("method", ["session/load", "session/resume"])
async def test_command_is_announced_in_a_session_that_is_opened_again(method):
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.request(method, {"sessionId": "s9", "cwd": "/tmp", "mcpServers": []})
        await editor.until(lambda: len(commands(editor)) == 2)
        assert editor.messages[-1]["params"]["sessionId"] == "s9"


async def test_command_is_added_to_those_of_the_agent_whenever_they_come():
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(announce("web", "plan"), announce())
        assert commands(editor) == [["terminal"], ["web", "plan", "terminal"], ["terminal"]]
        web = editor.updates[1]["availableCommands"][0]
        assert web == {"name": "web", "description": "…", "_meta": {"of": "agent"}}


async def test_command_is_not_announced_again_if_the_agent_was_first():
    async with proxied("--commands") as editor:
        await editor.open("/tmp")
        await editor.prompt(say("x"))
        assert commands(editor) == [["web", "terminal"]]


async def test_agents_own_command_of_that_name_is_left_out():
    async with proxied() as editor:
        await editor.open("/tmp")
        await editor.prompt(announce("terminal", "web"))
        assert commands(editor)[-1] == ["web", "terminal"]
        listed = editor.updates[-1]["availableCommands"]
        assert "_meta" not in listed[-1]


async def test_nothing_is_announced_or_answered_in_version_2():
    async with proxied("--v2") as editor:
        await editor.open("/tmp")
        await editor.prompt(announce("web"))
        await editor.result(await begin(editor, "/terminal list"))
        assert commands(editor) == [["web"]]
        assert editor.texts_sent == ["You said: /terminal list"]


# Providers


@pytest.fixture
def config(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    path = tmp_path / "acpterm" / "config.toml"
    path.parent.mkdir()
    path.write_text("rows = 50\n")
    return path


async def test_provider_is_shown_and_set(config):
    async with proxied() as editor:
        await editor.open("/tmp")
        assert await answer(editor, "/terminal provider get") == "Current provider: local"
        found = await answer(editor, "/terminal provider set landlock")
        assert found.startswith(f'{config}: provider = "landlock"\n')
        assert config.read_text() == 'provider = "landlock"\nrows = 50\n'
        assert await answer(editor, "/terminal provider get") == "Current provider: landlock"
        config.write_text("rows = 0\n")
        assert "rows" in await answer(editor, "/terminal provider get")


async def test_started_terminal_uses_the_selected_provider(config):
    async with proxied() as editor:
        await editor.open("/tmp")
        config.write_text('provider = "podman"\nimage = ""\n')
        found = await answer(editor, "/terminal start true")
        assert "podman" in found or "image" in found, found


@pytest.mark.long
async def test_providers_are_listed(config):
    async with proxied() as editor:
        await editor.open("/tmp")
        title, *rows = (await answer(editor, "/terminal provider list")).split("\n")
        assert title == "Available Providers:"
        assert [row[2:].split()[0] for row in rows] == list(NAMES)
        assert rows[0].split()[:4] == ["*", "local", "none", "works"]


def choosing(option, outcome="selected"):
    return lambda _: {"outcome": {"outcome": outcome, "optionId": option}}


@pytest.mark.long
@pytest.mark.parametrize(
    ("respond", "answered", "setting"),
    [
        (choosing("local"), 'provider = "local"', 'provider = "local"\nrows = 50\n'),
        (choosing("keep"), "Current provider: local", "rows = 50\n"),
        (lambda _: {"outcome": {"outcome": "cancelled"}}, "Current provider: local", "rows = 50\n"),
        (lambda _: {}, "Select one with /terminal provider set <name>", "rows = 50\n"),
    ],
)
async def test_provider_is_selected_in_the_editor(config, respond, answered, setting):
    async with proxied() as editor:
        await editor.open("/tmp")
        editor.on_request = respond
        assert answered in await answer(editor, "/terminal provider select")
        (request,) = [one for one in editor.messages if one.get("method") == PERMISSION]
        validate_sent(request, {})
        names = {option["optionId"]: option["name"] for option in request["params"]["options"]}
        assert names["local"] == "local (none)"
        assert names["keep"] == "Keep local"
        (end,) = editor.calls(request["params"]["toolCall"]["toolCallId"])
        assert end["status"] == "completed"
        assert config.read_text() == setting


@pytest.mark.long
async def test_cancelled_prompt_withdraws_its_question(config):
    async with proxied() as editor:
        await editor.open("/tmp")

        async def nothing(request, result=None):
            pass

        respond, editor.respond = editor.respond, nothing
        id_ = await begin(editor, "/terminal provider select")
        (request,) = await editor.until(
            lambda: [one for one in editor.messages if one.get("method") == PERMISSION]
        )
        await editor.notify("session/cancel", {"sessionId": editor.session})
        assert (await editor.result(id_))["stopReason"] == "cancelled"
        await editor.until(
            lambda: [one for one in editor.messages if one.get("method") == "$/cancel_request"]
        )
        # A late response reaches neither the agent nor another question.
        await respond(request, choosing("local")(request))
        assert await answer(editor, "/terminal provider get") == "Current provider: local"


# A daemon


@pytest.mark.long
async def test_terminal_outlives_the_proxy_and_is_the_users(tmp_path):
    async with daemon(tmp_path) as running:
        async with editor_of(tmp_path, running.path) as editor:
            await editor.open("/tmp")
            await editor.prompt(create("exec sleep 60"))
            await answer(editor, "/terminal start exec sleep 60")
            assert len((await answer(editor, "/terminal list")).split("\n")) == 5
        listed = await run(running.path, "ls", "--json")
        assert [one["name"] for one in json.loads(listed.out)] == ["term-1"]
        assert [one["owner"] for one in json.loads(listed.out)] == ["user"]


@pytest.mark.long
async def test_answer_continues_with_the_next_worker(tmp_path, patient_chat):
    go = tmp_path / "go"
    command = f"until [ -e {go} ]; do sleep 0.05; done; echo over"
    async with daemon(tmp_path) as running, editor_of(tmp_path, running.path) as editor:
        await editor.open("/tmp")
        id_ = await begin(editor, f"/terminal start {command}")
        await created(editor, "term-1")
        await running.kill_worker()
        go.touch()
        assert (await editor.result(id_))["stopReason"] == "end_turn"
        assert "over\n[exited with 0]" in editor.texts_sent[-1]


@pytest.mark.long
async def test_daemon_is_started_only_for_a_new_terminal(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    async with editor_of(tmp_path, path) as editor:
        # The agent's terminals are the editor's: no daemon is needed.
        await editor.open("/tmp", terminal=True)
        assert await answer(editor, "/terminal list") == "No active terminal sessions."
        assert "no daemon listens at" in await answer(editor, "/terminal output term-1")
        try:
            await answer(editor, "/terminal start exec sleep 60")
            assert "term-1 " in await answer(editor, "/terminal list")
            await editor.close()
            listed = await run(path, "ls", "--json")
            assert [one["name"] for one in json.loads(listed.out)] == ["term-1"]
        finally:
            await run(path, "shutdown")


@pytest.mark.long
async def test_agent_in_its_terminal_cannot_use_the_users_words(tmp_path):
    """A proxy that the agent starts in its terminal refuses `/terminal`, which is for the user."""
    async with daemon(tmp_path) as running, running.agent() as (agent, _):
        script = tmp_path / "ask.py"
        script.write_text(ASK)
        words = [str(script), sys.executable, running.path]
        terminal = await agent.create(sys.executable, args=words)
        await agent.wait(terminal)
        output = (await agent.output(terminal))["output"]
        assert "this is the user's endpoint: you run in an agent's terminal" in output


ASK = r"""
import json, subprocess, sys
python, socket = sys.argv[1:]
words = [python, "-m", "acpterm", "proxy", "--socket", socket, "--", "cat"]
pipe = subprocess.PIPE
proxy = subprocess.Popen(words, stdin=pipe, stdout=pipe, text=True, bufsize=1)
def send(id_, method, params):
    line = json.dumps({"jsonrpc": "2.0", "id": id_, "method": method, "params": params})
    proxy.stdin.write(line + "\n")
send(1, "initialize", {"protocolVersion": 1})
prompt = [{"type": "text", "text": "/terminal list"}]
send(2, "session/prompt", {"sessionId": "s", "prompt": prompt})
for line in proxy.stdout:
    message = json.loads(line)
    if message.get("method") == "session/update":
        print(message["params"]["update"]["content"]["text"])
        break
proxy.stdin.close()
"""
