"""What compatibility.md promises, with the example values of the two documents there."""

import json
from pathlib import Path

import msgspec
import pytest
import trio

from acpterm.config import ConfigError, load
from acpterm.config.profiles import BUILTIN, ProfileTable
from acpterm.config.tools import ToolSettings, resolve_tools
from acpterm.mcp import call
from acpterm.mcp.pool_tools import HISTORY_BYTES
from acpterm.mcp.sessions import TerminalSession
from acpterm.policy.judge import Judge
from tests.support.depth import DEADLINE_S
from tests.support.mcp import mcp_tools
from tests.support.polling import poll
from tests.support.user import user_of

SAFE_COMMANDS = [
    "awk", "cat", "cd", "chdir", "diff", "echo", "find", "git", "grep", "head", "help",
    "hostname", "id", "ipconfig", "tee", "ls", "netstat", "ps", "pwd", "sort", "tail",
    "tree", "type", "uname", "uniq", "wc", "which", "touch", "mkdir", "npm", "yarn",
    "bun", "tsc", "node", "npx", "bunx", "vitest",
]  # fmt: skip
# For each of the documented patterns a command that it matches.
DANGEROUS_COMMANDS = {
    r"(^|\s)dd\s": "dd if=/dev/zero of=x",
    r"(^|\s)rm.*-.*r": "rm -rf build",
    r"(^|\s)chmod.*-.*r": "chmod -R 777 .",
    r"(^|\s)chown.*-.*r": "chown -R me .",
    r"(^|\s)rmdir\s": "rmdir empty",
    r"find.*-(delete|exec)": "find . -delete",
    r"(^|\s)sudo\s": "sudo ls",
    r"(^|\s)del\s": "del file.txt",
    r"(^|\s)format\s": "format c:",
    r"(^|\s)reboot": "reboot",
    r"(^|\s)shutdown": "shutdown -h now",
    r"git.*reset": "git reset --hard",
}


def level(command: str) -> str:
    return Judge().judge(command, None, profile=BUILTIN["guarded"]).level


def confirm(**values: float) -> dict[str, ProfileTable]:
    return {"confirm": msgspec.convert({"base": "confirm", **values}, ProfileTable)}


@pytest.fixture
def programs(tmp_path, monkeypatch):
    """Put two programs first into PATH: `npm` prints 1024 bytes, and `python` prints 2048."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name, size in (("npm", 1024), ("python", 2048)):
        program = directory / name
        program.write_text(f"#!/bin/sh\nprintf '%{size}s' x\nexec cat\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(directory), prepend=":")


async def test_terminal_list_is_the_table_of_the_document(tmp_path, programs, monkeypatch):
    uptimes = {"term-1": 45.2, "term-2": 120.4}
    monkeypatch.setattr(TerminalSession, "uptime", property(lambda session: uptimes[session.id]))
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="npm run dev")
        await tools.call("terminal_start", command="python server.py")
        result = await tools.call("terminal_list")
    assert result.text == (
        "Active Terminal Sessions:\n"
        "ID           | Command                        | Position | Running | Uptime\n"
        "-------------|--------------------------------|----------|---------|--------\n"
        "term-1       | npm run dev                    | 1024     | Yes     | 45s\n"
        "term-2       | python server.py               | 2048     | Yes     | 120s"
    )


async def test_terminal_start_of_the_document(tmp_path, programs):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_start", command="npm run dev")
    heading, output = result.text.split("Output:\n")
    assert heading == (
        "Terminal Session Started\nTerminal Id: term-1\nSent Command: npm run dev\n\n"
    )
    assert output == " " * 1023 + "x"
    assert result.data["position"] == 1024


async def test_spawn_and_promotion_of_the_document(tmp_path, programs):
    async with mcp_tools(tmp_path, "pool", pool_profile="pool") as tools:
        spawned = await tools.call(
            "spawn_background_terminal", cwd=str(tmp_path), command=["npm", "run", "dev"]
        )
        created = spawned.data["createdAt"]
        promoted = await tools.call("promote_terminal", terminalId="pty-1")
    assert spawned.text == (
        f'{{"id":"pty-1","cwd":"{tmp_path}","owner":"agent","visible":false,'
        f'"createdAt":{created},"command":["npm","run","dev"]}}'
    )
    assert promoted.text == spawned.text.replace(
        '"owner":"agent","visible":false', '"owner":"user","visible":true'
    )


async def test_read_terminal_returns_the_last_64_kib_from_the_start_of_a_line(tmp_path):
    numbers = "".join(f"{n}\n" for n in range(1, 30_001))
    async with mcp_tools(tmp_path, "pool") as tools:
        await tools.call(
            "spawn_background_terminal", cwd="/", command=["sh", "-c", "seq 30000; sleep 60"]
        )
        with trio.fail_after(DEADLINE_S):
            while True:
                result = await tools.call("read_terminal", terminalId="pty-1")
                history = json.loads(result.text)["history"]
                if history.endswith("\n30000\n"):
                    break
                await trio.sleep(0.02)
    assert HISTORY_BYTES - 6 < len(history) <= HISTORY_BYTES
    assert numbers.endswith(f"\n{history}")


async def test_exited_process_is_not_listed_and_its_history_can_be_read(tmp_path):
    async with mcp_tools(tmp_path, "pool", pool_profile="pool") as tools:
        await tools.call("spawn_background_terminal", cwd="/", command=["echo", "done"])
        with trio.fail_after(DEADLINE_S):
            while (await tools.call("list_terminals")).text != "[]":
                await trio.sleep(0.02)
        result = await tools.call("read_terminal", terminalId="pty-1")
    assert result.text == '{"terminalId":"pty-1","history":"done\\n"}'


async def test_unknown_ids_are_errors_that_name_the_sessions(tmp_path):
    expected = "there is no session '{}'; the last is {}"
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="cat")
        for name in ("terminal_continue", "terminal_output", "terminal_stop"):
            result = await tools.call(name, sessionId="term-9")
            assert result.is_error, name
            assert result.blocks == [expected.format("term-9", "term-1")], name


async def test_unknown_ids_are_errors_of_the_pool(tmp_path):
    async with mcp_tools(tmp_path, "pool") as tools:
        for name in ("read_terminal", "promote_terminal"):
            result = await tools.call(name, terminalId="pty-abc123")
            assert result.is_error, name
            assert "'pty-abc123'" in result.text, name


@pytest.mark.parametrize("tool", ["terminal_bash", "terminal_start"])
@pytest.mark.parametrize("command", ["", " \n"])
async def test_empty_command_is_an_error(tmp_path, tool, command):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call(tool, command=command)
    assert result.is_error
    assert result.blocks == ["command is empty: it must be the command to execute"]


def test_confirm_asks_with_the_timeouts_of_the_document():
    profile = BUILTIN["confirm"]
    assert (profile.safe, profile.unknown, profile.dangerous) == ("allow", "ask", "ask")
    assert (profile.unknown_timeout, profile.dangerous_timeout) == (10.0, 0.0)
    assert profile.unattended == "wait"


@pytest.mark.parametrize("tool", ["terminal_bash", "terminal_start"])
async def test_unknown_command_is_refused_when_no_answer_comes_in_time(tmp_path, tool):
    profiles = confirm(unknown_timeout=0.3)
    async with mcp_tools(tmp_path, profile="confirm", profiles=profiles) as tools:
        result = await tools.call(tool, command="my_custom_script.sh")
        safe = await tools.call("terminal_bash", command="ls -la /")
    assert result.is_error
    assert result.text.endswith("and the user has not answered in time (0.3 s)")
    assert safe.data["exitCode"] == 0


async def test_dangerous_command_waits_for_its_answer_without_a_timeout(tmp_path, monkeypatch):
    monkeypatch.setattr(call, "BLOCK_MAX_S", 1.0)
    profiles = confirm(unknown_timeout=0.1)
    (tmp_path / "empty").mkdir()
    async with mcp_tools(tmp_path, profile="confirm", profiles=profiles) as tools:
        asked = await tools.call("terminal_bash", command=f"rmdir {tmp_path}/empty")
        assert asked.data["state"] == "approval_pending"
        async with user_of(tools.host) as user:
            with trio.fail_after(DEADLINE_S):
                while not (found := (await user.request("approval/list"))["approvals"]):
                    await trio.sleep(0.02)
            (question,) = found
            await user.request(
                "approval/answer", {"approvalId": question["approvalId"], "decision": "allow"}
            )
        await poll(lambda: not (tmp_path / "empty").exists())


def test_documented_safe_commands_are_safe():
    names = set(BUILTIN["guarded"].safe_commands)
    assert names == set(SAFE_COMMANDS)
    assert level("npm install") == "safe"
    assert level("ls -la") == "safe"


@pytest.mark.parametrize("pattern", DANGEROUS_COMMANDS)
def test_command_of_each_documented_pattern_is_dangerous(pattern):
    assert level(DANGEROUS_COMMANDS[pattern]) == "dangerous"


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ("rm my-report.txt", "unknown"),
        ("git commit -m 'reset the counter'", "safe"),
        ("echo sudo reboot", "safe"),
    ],
)
def test_text_in_arguments_is_not_dangerous_unlike_in_the_document(command, expected):
    assert level(command) == expected


def settings_of(tmp_path: Path, text: str):
    path = tmp_path / "config.toml"
    path.write_text(text)
    return load(str(path), environ={})


DEFAULTS = """
provider = "local"
tool_crop_output = 10000
tool_timeout_seconds = 60
tool_min_interval = 1
tool_settle_interval = 2
tool_max_interval = 30
"""
AGENT = """
[[tools_for]]
agent = "my-agent"
crop_output = 5000
timeout_seconds = 30
min_interval = 1
settle_interval = 2
max_interval = 30
"""


def test_documented_settings_are_the_defaults(tmp_path):
    assert settings_of(tmp_path, DEFAULTS) == settings_of(tmp_path, "")


def test_documented_settings_of_an_agent_override_the_defaults(tmp_path):
    settings = settings_of(tmp_path, DEFAULTS + AGENT)
    general = ToolSettings()
    assert resolve_tools(general, settings.tools_for, "other") == general
    assert resolve_tools(general, settings.tools_for, "my-agent") == ToolSettings(
        crop_output=5000, timeout_seconds=30
    )
    partial = settings_of(tmp_path, '[[tools_for]]\nagent = "*"\ncrop_output = 5000\n')
    assert resolve_tools(general, partial.tools_for, "any").timeout_seconds == 60


@pytest.mark.parametrize("text", ["tool_cropOutput = 1", '[[tools_for]]\nagent = "x"\nextra = 1\n'])
def test_unknown_settings_are_errors(tmp_path, text):
    with pytest.raises(ConfigError):
        settings_of(tmp_path, text)
