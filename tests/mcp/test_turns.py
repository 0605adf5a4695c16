"""Two calls at once that use the same session."""

import os

import anyio
import pytest
import trio

from tests.support.depth import DEADLINE_S
from tests.support.mcp import QUICK, mcp_tools
from tests.support.user import user_of

TYPES = {
    "session": ("terminal_start", {"command": "cat"}, "terminal_continue", "sessionId", "stdin"),
    "codex": ("exec_command", {"cmd": "cat"}, "write_stdin", "session_id", "chars"),
}


async def at_once(tools, *calls):
    """Send calls at once; return their results, in the order in which they end."""
    results = []

    async def send(name, arguments):
        results.append(await tools.call(name, **arguments))

    async with anyio.create_task_group() as tasks:
        for name, arguments in calls:
            tasks.start_soon(send, name, arguments)
    return results


@pytest.mark.parametrize("tool_set", TYPES)
async def test_each_of_two_calls_gets_the_answer_to_what_it_typed(tmp_path, tool_set):
    start, program, tool, name, text = TYPES[tool_set]
    async with mcp_tools(tmp_path, tool_set) as tools:
        await tools.call(start, **program)
        typed = [(tool, {name: 1, text: f"line {n}\n"}) for n in range(2)]
        results = await at_once(tools, *typed)
    assert {each.data["output"] for each in results} == {f"line {n}\nline {n}\n" for n in range(2)}


@pytest.mark.parametrize(
    ("tool_set", "start", "tool"),
    [
        ("session", ("terminal_start", "command"), ("terminal_wait", "sessionId")),
        ("codex", ("exec_command", "cmd"), ("write_stdin", "session_id")),
    ],
)
async def test_output_is_in_one_of_two_results_that_wait_for_it(tmp_path, tool_set, start, tool):
    go = tmp_path / "go"
    os.mkfifo(go)
    command = f"read x; read y <{go}; seq 3; exec cat"
    async with mcp_tools(tmp_path, tool_set, **QUICK) as tools:
        await tools.call(start[0], **{start[1]: command})

        async def let_it_print():
            async with await anyio.open_file(go, "w") as pipe:
                await pipe.write("go\n")

        typing = {"session": ("terminal_continue", "stdin"), "codex": ("write_stdin", "chars")}
        await tools.call(typing[tool_set][0], **{tool[1]: 1, typing[tool_set][1]: "\n"})
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(let_it_print)
            results = await at_once(tools, *[(tool[0], {tool[1]: 1})] * 2)
    assert sorted(each.data["output"] for each in results) == ["", "1\n2\n3\n"]


async def test_calls_at_once_share_the_one_bash_of_the_inspect_tool(tmp_path, bash_without_rc):
    async with mcp_tools(tmp_path, "inspect") as tools:
        typed = [
            ("bash_session", {"action": "type_submit", "input": f"echo a{n}; echo b{n}"})
            for n in range(2)
        ]
        results = await at_once(tools, *typed)
        async with user_of(tools.host) as user:
            assert len((await user.request("terminal/list"))["terminals"]) == 1
    assert {("a0" in each.text, "\nb1\n" in each.text) for each in results} == {
        (True, False),
        (False, True),
    }


async def test_shell_that_has_ended_is_unknown_to_the_later_of_two_calls(tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    async with mcp_tools(tmp_path, "claude") as tools:
        await tools.call("Bash", command=f"read x <{go}; echo end", run_in_background=True)
        async with await anyio.open_file(go, "w") as pipe:
            await pipe.write("go\n")
        results = []
        with trio.fail_after(DEADLINE_S):
            while not any(each.is_error for each in results):
                results += await at_once(tools, *[("BashOutput", {"bash_id": "term-1"})] * 4)
    assert [each.text.count("end") for each in results if "completed" in each.text] == [1]
    unknown = "there is no session 'term-1'"
    assert all(each.text.startswith(unknown) for each in results if each.is_error)
