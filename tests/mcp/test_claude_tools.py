"""The tools of Claude Code, with its schemas and defaults."""

import re

import anyio
import pytest

from acpterm.api.results import Exit, Output
from acpterm.config.tools import ToolSettings
from acpterm.mcp import call, claude_tools
from acpterm.mcp.sessions import TerminalSession
from acpterm.mcp.waiting import read_new
from tests.support.depth import DEADLINE_S
from tests.support.mcp import mcp_tools
from tests.support.processes import alive
from tests.support.user import user_of


@pytest.mark.long
async def test_schemas_are_those_of_claude_code(tmp_path):
    async with mcp_tools(tmp_path, "claude") as tools:
        listed = {tool.name: tool.input_schema for tool in (await tools.client.list_tools()).tools}
    kinds = {
        name: {key: value["type"] for key, value in schema["properties"].items()}
        for name, schema in listed.items()
    }
    assert kinds == {
        "Bash": {
            "command": "string",
            "timeout": "number",
            "description": "string",
            "run_in_background": "boolean",
            "dangerouslyDisableSandbox": "boolean",
        },
        "BashOutput": {"bash_id": "string", "filter": "string"},
        "KillShell": {"shell_id": "string"},
        "Monitor": {
            "command": "string",
            "description": "string",
            "timeout_ms": "number",
            "persistent": "boolean",
        },
    }
    assert listed["Bash"]["required"] == ["command"]
    assert listed["BashOutput"]["required"] == ["bash_id"]
    assert listed["Monitor"]["properties"]["timeout_ms"]["default"] == 300000


@pytest.mark.long
async def test_bash_returns_the_output(tmp_path):
    async with mcp_tools(tmp_path, "claude") as tools:
        result = await tools.call("Bash", command="echo hi", description="Says hi")
        failed = await tools.call("Bash", command="echo no; (exit 2)", timeout=5000)
    # As Claude Code's own tool: no line with the state if the text says everything.
    assert result.blocks == ["hi\n"]
    assert failed.blocks == ["Exit code 2\nno\n"]
    assert failed.data["exitCode"] == 2
    # The shell's own start does not count.
    assert (result.data["position"], result.data["totalBytes"]) == (3, 3)
    assert (result.data["complete"], result.data["endedBy"]) == (True, "exited")


@pytest.mark.long
async def test_bash_at_its_time_limit_continues_in_the_background(tmp_path):
    async with mcp_tools(tmp_path, "claude") as tools:
        result = await tools.call("Bash", command="echo begun; sleep 60", timeout=500)
        identifier = result.data["id"]
        heading = (
            "The command has not ended after 0.5 s, and continues in the background with ID: "
            f"{identifier}\n"
        )
        assert result.text.startswith(heading)
        output = result.text.removeprefix(heading)
        with anyio.fail_after(DEADLINE_S):
            while output != "begun\n":
                output += (await tools.call("BashOutput", bash_id=identifier)).data["output"]
        killed = await tools.call("KillShell", shell_id=identifier)
    assert killed.text == (
        f'{{"message":"Successfully killed shell: {identifier} (echo begun; sleep 60)",'
        f'"shell_id":"{identifier}"}}'
    )


async def test_bash_output_returns_new_lines_that_match(tmp_path, monkeypatch):
    script = "seq 1 20; read line; exit 3"
    async with mcp_tools(tmp_path, "claude") as tools:
        with monkeypatch.context() as patch:
            patch.setattr(claude_tools, "BACKGROUND_WAIT_S", DEADLINE_S)
            started = await tools.call("Bash", command=script, run_in_background=True)
        identifier = started.data["id"]
        assert started.text.startswith(f"Command running in background with ID: {identifier}\n")
        silent = await tools.call("BashOutput", bash_id=identifier)
        assert re.fullmatch(r"<status>running</status>\n\n<timestamp>\S+Z</timestamp>", silent.text)
        await tools.call("KillShell", shell_id=identifier)
        script = f"until test -e {tmp_path}/go; do sleep 0.05; done; seq 1 20; exit 3"
        started = await tools.call("Bash", command=script, run_in_background=True)
        identifier = started.data["id"]
        (tmp_path / "go").touch()
        async with user_of(tools.host) as user:
            await user.request("terminal/wait", {"terminalId": identifier})
        result = await tools.call("BashOutput", bash_id=identifier, filter="^1[^0-4]$")
    numbers = "\n".join(str(n) for n in range(15, 20))
    assert result.text.startswith(
        "<status>completed</status>\n\n<exit_code>3</exit_code>\n\n"
        f"<stdout>\n{numbers}\n</stdout>\n\n<timestamp>"
    )


@pytest.mark.long
async def test_bash_in_the_background_tells_the_id_of_what_its_command_has_left(tmp_path):
    async with mcp_tools(tmp_path, "claude") as tools:
        result = await tools.call("Bash", command="sleep 600 & echo $!", run_in_background=True)
        identifier = result.data["id"]
        assert result.state.startswith(f"[{identifier} exited after")
        await tools.call("KillShell", shell_id=identifier)
        assert not alive(int(result.data["output"]))


@pytest.mark.long
@pytest.mark.parametrize(
    "options", [{"run_in_background": True}, {"timeout": 100}], ids=["program", "shell"]
)
async def test_bash_output_filters_a_line_when_it_is_complete(tmp_path, options):
    script = (
        f"until test -e {tmp_path}/1; do sleep 0.05; done; printf 'one\\nt'; "
        f"until test -e {tmp_path}/2; do sleep 0.05; done; printf 'wo\\nno\u2028no\\nthree'"
    )
    async with mcp_tools(tmp_path, "claude") as tools:
        started = await tools.call("Bash", command=script, **options)
        arguments = {"bash_id": started.data["id"], "filter": "^(one|two|no|three)$"}
        (tmp_path / "1").touch()
        output = ""
        with anyio.fail_after(DEADLINE_S):
            while output != "one\n":
                output += (await tools.call("BashOutput", **arguments)).data["output"]
            (tmp_path / "2").touch()
            is_complete = False
            while not is_complete:
                data = (await tools.call("BashOutput", **arguments)).data
                output += data["output"]
                is_complete = data["complete"]
    assert output == "one\ntwo\nthree"


@pytest.mark.long
async def test_bash_output_filters_the_beginning_of_a_line_when_it_is_very_long(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(claude_tools, "LINE_CHARS_MAX", 5)
    script = f"until test -e {tmp_path}/go; do sleep 0.05; done; printf 123456; sleep 60"
    async with mcp_tools(tmp_path, "claude") as tools:
        started = await tools.call("Bash", command=script, run_in_background=True)
        (tmp_path / "go").touch()
        output = ""
        with anyio.fail_after(DEADLINE_S):
            while not output:
                result = await tools.call("BashOutput", bash_id=started.data["id"], filter="1")
                output = result.data["output"]
    assert output == "123456"


async def test_unread_beginning_of_a_line_is_ended_when_the_output_after_it_is_lost():
    outputs = [Output("ee\n", 20, 15, Exit(0, None)), Output("", 20, 0, Exit(0, None))]

    class LossyTerminal:
        async def read(self, _position):
            return outputs.pop(0)

    session = TerminalSession("term-1", LossyTerminal(), "command", "/", position=2, unread="t")
    view = await read_new(call.Call(None, None, None, ToolSettings()), session)
    assert (view.text, session.unread) == ("t\nee\n", "")


async def test_monitor_sends_each_line_as_an_event(tmp_path):
    events = []

    async def on_progress(progress, total, message):
        events.append(message)
        (tmp_path / "go").touch()

    script = f"echo one; until test -e {tmp_path}/go; do sleep 0.05; done; echo two; exit 4"
    async with mcp_tools(tmp_path, "claude") as tools:
        result = await tools.call(
            "Monitor", command=script, description="numbers", progress=on_progress
        )
    assert events == ["one", "two"]
    assert result.text == f"Monitor {result.data['id']}: ended, exit code 4\none\ntwo\n"


@pytest.mark.long
async def test_monitor_sends_a_line_when_it_is_complete(tmp_path):
    events = []

    async def on_progress(progress, total, message):
        events.append(message)

    script = "printf 'one\\nt'; sleep 0.6; echo wo; printf th; sleep 0.6; printf ree"
    async with mcp_tools(tmp_path, "claude") as tools:
        await tools.call("Monitor", command=script, progress=on_progress)
    assert "\n".join(events) == "one\ntwo\nthree"


@pytest.mark.long
async def test_monitor_sends_the_beginning_of_a_line_when_it_is_very_long(tmp_path, monkeypatch):
    monkeypatch.setattr(claude_tools, "LINE_CHARS_MAX", 5)
    events = []

    async def on_progress(progress, total, message):
        events.append(message)
        (tmp_path / "go").touch()

    script = f"printf 123456; until test -e {tmp_path}/go; do sleep 0.05; done; echo 7"
    async with mcp_tools(tmp_path, "claude") as tools:
        await tools.call("Monitor", command=script, timeout_ms=30_000, progress=on_progress)
    assert events == ["123456", "7"]


async def test_monitor_ends_a_line_when_the_output_after_it_is_lost(monkeypatch):
    monkeypatch.setattr(claude_tools, "BATCH_S", 0)
    batches = [
        Output("one\nt", 5, 0),
        Output("ee\nfour\n", 30, 15),
        Output("", 30, 0, Exit(0, None)),
    ]
    events = []

    class LossyTerminal:
        async def read(self, _position, wait=None):
            if wait is None:
                return batches.pop(0)
            return batches[0]

    async def report(elapsed, message):
        events.append(message)

    following = call.Call(None, None, None, None, report=report)
    session = TerminalSession("term-1", LossyTerminal(), "command", "/")
    assert not await claude_tools._follow(following, session, "numbers")
    assert events == ["one", "t\nee\nfour"]


@pytest.mark.long
async def test_monitor_ends_a_flood(tmp_path):
    async with mcp_tools(tmp_path, "claude", kill_grace=0.2) as tools:
        result = await tools.call("Monitor", command="yes", description="a flood")
    assert "ended, because it flooded its output" in result.text
    assert result.data["state"] == "killed"


async def test_monitor_that_still_runs_is_read_with_bash_output(tmp_path, monkeypatch):
    async with mcp_tools(tmp_path, "claude") as tools:
        for seconds in (0.5, 5.0):
            monkeypatch.setattr(call, "BLOCK_MAX_S", seconds)
            result = await tools.call(
                "Monitor", command="echo up; sleep 60", description="a server", persistent=True
            )
            # On a busy machine, the shorter time may be over before the output.
            if result.text.endswith("\nup\n"):
                break
        assert result.text == f"Monitor {result.data['id']}: still monitored\nup\n"
        output = await tools.call("BashOutput", bash_id=result.data["id"])
    assert output.text.startswith("<status>running</status>")
