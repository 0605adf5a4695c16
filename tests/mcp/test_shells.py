"""Commands in persistent shells."""

import pytest

from acpterm.mcp import call
from tests.support.mcp import mcp_tools


@pytest.fixture(autouse=True)
def bash_without_rc(monkeypatch, tmp_path):
    monkeypatch.setenv("SHELL", "/bin/bash")
    monkeypatch.setenv("HOME", str(tmp_path))


async def test_commands_of_a_session_share_directory_and_variables(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        first = await tools.call("terminal_bash", session="build", command="cd /usr; x=5; false")
        second = await tools.call("terminal_bash", session="build", command="pwd; echo $x")
        other = await tools.call("terminal_bash", session="other", command="echo ${x:-none}")
    assert first.text == "Exit Code: 1\n\nOutput:\n"
    assert first.data["exitCode"] == 1
    assert first.data["cwd"] == "/usr"
    assert 'terminal_bash {"session":"build","command":…}' in first.state
    assert second.data["output"] == "/usr\n5\n"
    assert other.data["output"] == "none\n"


async def test_busy_shell_is_waited_for_and_has_the_exit_code(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call(
            "terminal_bash", session="build", command="sleep 2; exit_code=7; (exit 7)",
            timeout_seconds=0.5,
        )  # fmt: skip
        assert result.data["state"] == "running"
        busy = await tools.call("terminal_bash", session="build", command="true")
        assert busy.is_error
        assert "a command still runs in the shell 'build'" in busy.text
        waited = await tools.call("terminal_wait", sessionId=result.data["id"])
    assert waited.data["exitCode"] == 7


async def test_claude_bash_keeps_directory_and_variables(tmp_path):
    async with mcp_tools(tmp_path, "claude") as tools:
        await tools.call("Bash", command="cd /usr && export NAME=value")
        result = await tools.call("Bash", command="pwd; echo $NAME")
    assert result.text == "/usr\nvalue\n"


async def test_claude_bash_that_takes_too_long_leaves_a_new_shell_for_the_next(
    tmp_path, monkeypatch
):
    async with mcp_tools(tmp_path, "claude") as tools:
        await tools.call("Bash", command="cd /usr")
        slow = await tools.call("Bash", command="echo begun; sleep 1; (exit 9)", timeout=300)
        assert "continues in the background with ID: term-1" in slow.text
        monkeypatch.setattr(call, "BLOCK_MAX_S", 45)
        result = await tools.call("Bash", command="pwd; sleep 1.5")
        assert result.text == "/usr\n"
        output = await tools.call("BashOutput", bash_id="term-1")
    assert "<exit_code>9</exit_code>" in output.text


async def test_refused_command_does_not_reach_the_shell(tmp_path):
    async with mcp_tools(tmp_path, profile="guarded") as tools:
        result = await tools.call("terminal_bash", session="s", command="rm -r no-such-directory")
    assert result.is_error
    assert "the command was refused" in result.text
