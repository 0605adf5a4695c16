"""The tools of Codex, with its schemas and defaults."""

import re

import pytest

from tests.support.mcp import mcp_tools
from tests.support.user import user_of


async def test_schemas_are_those_of_codex(tmp_path):
    async with mcp_tools(tmp_path, "codex") as tools:
        listed = {tool.name: tool for tool in (await tools.client.list_tools()).tools}
    assert list(listed) == ["exec_command", "write_stdin"]
    assert listed["exec_command"].description == (
        "Runs a command in a PTY, returning output or a session ID for ongoing interaction."
    )
    exec_command = listed["exec_command"].input_schema
    assert exec_command["required"] == ["cmd"]
    kinds = {name: value.get("type") for name, value in exec_command["properties"].items()}
    assert kinds == {
        "cmd": "string",
        "workdir": "string",
        "tty": "boolean",
        "yield_time_ms": "number",
        "max_output_tokens": "number",
        "shell": "string",
        "login": "boolean",
        "sandbox_permissions": None,
        "justification": "string",
        "prefix_rule": "array",
    }
    assert set(exec_command["properties"]["sandbox_permissions"]["enum"]) == {
        "use_default",
        "with_additional_permissions",
        "require_escalated",
    }
    defaults = {
        name: value["default"]
        for name, value in exec_command["properties"].items()
        if "default" in value
    }
    assert defaults == {
        "tty": False,
        "yield_time_ms": 10000,
        "max_output_tokens": 10000,
        "login": True,
    }
    write_stdin = listed["write_stdin"].input_schema
    assert write_stdin["required"] == ["session_id"]
    assert write_stdin["properties"]["session_id"]["type"] == "number"
    assert write_stdin["properties"]["chars"]["default"] == ""
    output = listed["exec_command"].output_schema
    assert set(output["properties"]) == {
        "status",
        "chunk_id",
        "wall_time_seconds",
        "exit_code",
        "session_id",
        "original_token_count",
        "output",
    }
    assert set(output["required"]) == {"wall_time_seconds", "output"}


async def test_exec_command_returns_output_and_exit_code(tmp_path):
    async with mcp_tools(tmp_path, "codex") as tools:
        result = await tools.call(
            "exec_command", cmd="echo $CODEX_CI $TERM $PAGER; pwd; exit 3", workdir=str(tmp_path)
        )
    assert result.data["exit_code"] == 3
    assert result.data["output"] == f"1 dumb cat\n{tmp_path}\n"
    assert "session_id" not in result.data
    # The text says everything, so there is no line with the state.
    assert len(result.blocks) == 1
    assert re.fullmatch(
        r"Chunk ID: [0-9a-f]{6}\nWall time: \d+\.\d{4} seconds\nProcess exited with code 3\n"
        rf"Original token count: \d+\nOutput:\n1 dumb cat\n{re.escape(str(tmp_path))}\n",
        result.text,
    )


@pytest.mark.long
async def test_write_stdin_continues_a_session(tmp_path):
    script = "printf 'name? '; read name; echo hello $name"
    async with mcp_tools(tmp_path, "codex") as tools:
        started = await tools.call("exec_command", cmd=script, yield_time_ms=30_000)
        assert started.data["session_id"] == 1
        assert "Process running with session ID 1\n" in started.text
        assert started.data["output"] == "name? "
        assert started.data["status"] == started.state
        result = await tools.call(
            "write_stdin", session_id="term-1", chars="you\n", yield_time_ms=30_000
        )
        again = await tools.call("write_stdin", session_id=1, chars="")
    assert result.data["output"] == "you\nhello you\n"
    assert result.data["exit_code"] == 0
    assert again.is_error


async def test_write_stdin_polls_and_interrupts(tmp_path):
    async with mcp_tools(tmp_path, "codex") as tools:
        # A login shell that is interrupted while it reads its profile may go on.
        started = await tools.call("exec_command", cmd="sleep 60", login=False, yield_time_ms=250)
        number = started.data["session_id"]
        result = await tools.call(
            "write_stdin", session_id=number, chars="\x03", yield_time_ms=30_000
        )
    assert result.data["exit_code"] != 0


async def test_write_stdin_types_exactly_what_it_is_given(tmp_path):
    script = "stty raw -echo; printf .; dd bs=1 count=4 2>/dev/null | od -An -c"
    async with mcp_tools(tmp_path, "codex") as tools:
        started = await tools.call("exec_command", cmd=script, tty=True, yield_time_ms=30_000)
        number = started.data["session_id"]
        result = await tools.call("write_stdin", session_id=number, chars="abc\r")
        while "exit_code" not in result.data:
            result = await tools.call("write_stdin", session_id=number, chars="")
    assert result.data["output"].split() == ["a", "b", "c", "\\r"]


async def test_error_about_an_ended_program_names_nothing_that_the_model_does_not_know(tmp_path):
    async with mcp_tools(tmp_path, "codex") as tools:
        script = f"until test -e {tmp_path}/go; do sleep 0.05; done"
        started = await tools.call("exec_command", cmd=script, login=False, yield_time_ms=250)
        (tmp_path / "go").touch()
        async with user_of(tools.host) as user:
            await user.request("terminal/wait", {"terminalId": "term-1"})
        result = await tools.call("write_stdin", session_id=1, chars="x\n")
    assert started.data["session_id"] == 1
    assert (result.blocks, result.is_error) == (["nothing was typed: the program has ended"], True)


async def test_output_is_cut_to_the_tokens_that_are_wanted(tmp_path):
    async with mcp_tools(tmp_path, "codex") as tools:
        result = await tools.call("exec_command", cmd="seq 1 10000", max_output_tokens=100)
    assert len(result.data["output"]) < 600
    assert result.data["original_token_count"] > 10_000
    assert "left out" in result.data["output"]


async def test_exit_code_of_a_program_that_a_signal_ended_is_128_and_its_number(tmp_path):
    async with mcp_tools(tmp_path, "codex") as tools:
        result = await tools.call("exec_command", cmd="kill -9 $$")
    assert result.data["exit_code"] == 137
