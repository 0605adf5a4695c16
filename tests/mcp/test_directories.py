"""Directories of the client that are gone, or that are not UTF-8."""

import os

import pytest

from tests.support.mcp import mcp_tools


@pytest.mark.parametrize("shell", [{}, {"session": "main"}])
async def test_command_runs_in_a_parent_if_the_directory_is_gone_and_says_so(
    tmp_path, monkeypatch, shell
):
    gone = tmp_path / "work" / "tree"
    gone.mkdir(parents=True)
    monkeypatch.chdir(gone)
    async with mcp_tools(tmp_path) as tools:
        first = await tools.call("terminal_bash", command="pwd")
        assert first.data["output"] == f"{gone}\n"
        assert "gone" not in first.state
        gone.rmdir()
        gone.parent.rmdir()
        result = await tools.call("terminal_bash", command="pwd", **shell)
        assert result.data["output"] == f"{tmp_path}\n"
        assert result.data["cwd"] == str(tmp_path)
        assert f", in {tmp_path}, since {gone} is gone" in result.state
        named = await tools.call("terminal_bash", command="pwd", cwd=str(gone))
        assert f"cwd '{gone}' does not exist" in named.text


async def test_shell_in_a_directory_that_is_not_utf8_breaks_no_result(tmp_path):
    os.mkdir(os.path.join(os.fsencode(tmp_path), b"caf\xe9"))
    shown = f"{tmp_path}/caf\N{REPLACEMENT CHARACTER}"
    async with mcp_tools(tmp_path) as tools:
        command = f"cd {tmp_path}/caf*"
        changed = await tools.call("terminal_bash", command=command, session="main")
        assert changed.state.endswith(f", in {shown}]")
        result = await tools.call("terminal_bash", command="pwd", session="main")
        assert (result.data["output"], result.data["cwd"]) == (f"{shown}\n", shown)
        assert (await tools.call("terminal_list")).data["sessions"][0]["cwd"] == shown
