"""The session tools, with the inputs and outputs that their documentation shows."""

import re
import time

import pytest
import trio

from acpterm.config.tools import ToolsFor
from acpterm.mcp import patterns
from acpterm.mcp.patterns import ModelPattern
from tests.support.mcp import QUICK, mcp_tools
from tests.support.processes import alive
from tests.support.user import user_of

TOOLS = [
    "terminal_bash",
    "terminal_start",
    "terminal_continue",
    "terminal_wait",
    "terminal_output",
    "terminal_screen",
    "terminal_list",
    "terminal_stop",
]


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_tools_have_schemas_and_annotations(tmp_path, mode):
    async with mcp_tools(tmp_path, mode=mode) as tools:
        listed = (await tools.client.list_tools()).tools
    assert [tool.name for tool in listed] == TOOLS
    for tool in listed:
        assert tool.input_schema["type"] == "object"
        assert tool.output_schema is not None
        assert tool.output_schema["type"] == "object"
        assert tool.annotations is not None
    reads_only = {tool.name for tool in listed if tool.annotations.read_only_hint}
    assert reads_only == {
        "terminal_wait",
        "terminal_output",
        "terminal_screen",
        "terminal_list",
    }


async def test_terminal_bash_returns_exit_code_and_output(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command="echo one; echo two >&2; exit 3")
    assert re.fullmatch(r"\[exited after \d+\.\d s, exit code 3\]", result.state)
    assert result.text == "one\ntwo\n"
    assert result.data["status"] == result.state
    assert result.data["exitCode"] == 3
    assert result.data["state"] == "exited"
    assert result.data["endedBy"] == "exited"
    assert result.data["output"] == "one\ntwo\n"
    assert not result.is_error


async def test_terminal_bash_tells_what_runs_on_and_terminal_stop_ends_it(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command="sleep 600 & echo $!")
        pid = int(result.data["output"])
        session = result.data["id"]
        assert re.fullmatch(
            rf"\[{session} exited after \d+\.\d s, exit code 0 · "
            rf"still running: sleep 600 \(pid {pid}\) · terminal_stop ends it\]",
            result.state,
        )
        assert result.data["background"] == [{"pid": pid, "command": "sleep 600", "ports": []}]
        found = await tools.call("terminal_list")
        (listed,) = found.data["sessions"]
        assert listed["background"] == [f"sleep 600 (pid {pid})"]
        # A call of terminal_wait would find nothing to wait for.
        assert found.state == "[1 running]"
        for position in {}, {"since": 0}:
            read = await tools.call("terminal_output", sessionId=session, **position)
            assert read.state.endswith(
                f"still running: sleep 600 (pid {pid}) · terminal_stop ends it]"
            )
        assert alive(pid)
        await tools.call("terminal_stop", sessionId=session)
        assert not alive(pid)
        assert not (await tools.call("terminal_list")).data["sessions"]


async def test_terminal_bash_names_three_of_what_runs_on_and_tells_that_there_are_others(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        for number in (3, 4):
            line = "sleep 600 & " * number
            state = (await tools.call("terminal_bash", command=f"{line}:")).state
            assert (state.count("(pid "), " and others" in state) == (3, number == 4)


@pytest.mark.parametrize(
    ("tools_set", "start", "stop"),
    [("session", "terminal_start", "terminal_stop"), ("claude", "Bash", "KillShell")],
)
async def test_terminal_that_the_user_took_over_is_not_stopped(tmp_path, tools_set, start, stop):
    async with mcp_tools(tmp_path, tools_set, **QUICK) as tools, user_of(tools.host) as user:
        more = {"run_in_background": True} if start == "Bash" else {}
        await tools.call(start, command="sleep 600", **more)
        (terminal,) = await user.list()
        await user.terminal_request("promote", terminal["terminalId"])
        result = await tools.call(stop, sessionId=terminal["name"])
        assert result.is_error
        assert "was not ended: the user owns it" in result.text
        assert alive(terminal["pid"])


async def test_later_output_of_what_runs_on_is_read_by_position(tmp_path):
    fifo = tmp_path / "fifo"
    async with mcp_tools(tmp_path) as tools:
        line = f"mkfifo {fifo}; (read x <{fifo}; echo late; sleep 600) & echo now"
        session = (await tools.call("terminal_bash", command=line)).data["id"]
        await trio.to_thread.run_sync(fifo.write_text, "go\n")
        output = ""
        while not output:
            output = (await tools.call("terminal_continue", sessionId=session)).data["output"]
        assert output == "late\n"


async def test_terminal_bash_runs_ls(tmp_path):
    (tmp_path / "file").touch()
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command="ls -la", cwd=str(tmp_path))
    assert result.text.startswith("total ")
    assert result.data["cwd"] == str(tmp_path)


async def test_terminal_start_shows_id_command_and_output(tmp_path):
    command = "echo 'Server starting...'; sleep 60"
    for settle_s in (0.3, 5.0):
        async with mcp_tools(tmp_path, tool_settle_interval=settle_s) as tools:
            result = await tools.call("terminal_start", command=command)
        # On a busy machine, the shorter time may be over before the output.
        if result.data["output"]:
            break
    assert result.text == (
        "Terminal Session Started\n"
        "Terminal Id: term-1\n"
        "Sent Command: echo 'Server starting...'; sleep 60\n"
        "\n"
        "Output:\n"
        "Server starting...\n"
    )
    assert result.data["id"] == "term-1"
    assert result.data["output"] == "Server starting...\n"
    assert result.data["position"] == len("Server starting...\r\n")
    assert result.data["state"] == "running"
    assert re.fullmatch(r"\[running \d+\.\d s · terminal_wait\]", result.state)


async def test_terminal_continue_sends_stdin_and_returns_only_new_output(tmp_path):
    script = "printf 'Start? '; read answer; echo Server started on port 3000; exec cat"
    async with mcp_tools(tmp_path) as tools:
        started = await tools.call("terminal_start", command=script)
        # The output ends with the prompt, so the state does not repeat it.
        assert started.state.endswith(" waits for input · terminal_continue]")
        assert started.text.endswith("Output:\nStart? ")
        result = await tools.call("terminal_continue", sessionId="term-1", stdin="y\n")
    assert result.text == ("Terminal Session: term-1\n\nOutput:\ny\nServer started on port 3000\n")
    assert result.data["output"] == "y\nServer started on port 3000\n"
    assert result.data["complete"] is False
    assert result.data["position"] > started.data["position"]


@pytest.mark.long
async def test_python_repl_of_the_documentation(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        started = await tools.call("terminal_start", command="python3 -q")
        identifier = started.data["id"]
        first = await tools.call(
            "terminal_continue", sessionId=identifier, stdin='print("Hello from Python")\n'
        )
        assert "\nHello from Python\n" in first.data["output"]
        second = await tools.call(
            "terminal_continue", sessionId=identifier, stdin="x = 42\nprint(x * 2)\n"
        )
        assert "\n84\n" in second.data["output"]
        assert "Hello" not in second.data["output"]
        assert "waits for input" in second.state
        stopped = await tools.call("terminal_stop", sessionId=identifier)
    assert stopped.text == "Terminal session term-1 terminated."


async def test_terminal_list_shows_a_table(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="cat")
        await tools.call("terminal_start", command="echo a very long command line; exec cat")
        result = await tools.call("terminal_list")
    lines = result.text.split("\n")
    assert lines[:3] == [
        "Active Terminal Sessions:",
        "ID           | Command                        | Position | Running | Uptime",
        "-------------|--------------------------------|----------|---------|--------",
    ]
    assert re.fullmatch(r"term-1       \| cat {28}\| 0        \| Yes     \| \d+s", lines[3])
    assert re.fullmatch(
        r"term-2       \| echo a very long command line… \| 26       \| Yes     \| \d+s", lines[4]
    )
    assert [each["id"] for each in result.data["sessions"]] == ["term-1", "term-2"]


async def test_terminal_list_is_empty_after_the_end_was_reported(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        started = await tools.call("terminal_start", command="echo done")
        assert started.data["complete"] is True
        result = await tools.call("terminal_list")
        assert result.text == "No active terminal sessions."
        output = await tools.call("terminal_output", sessionId="term-1")
    assert output.text == "Terminal Session: term-1\nComplete Output:\ndone\n"


async def test_terminal_output_returns_everything_without_truncation(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        started = await tools.call("terminal_start", command="seq 1 5000; exec cat")
        assert started.data["truncated"] is True
        result = await tools.call("terminal_output", sessionId="term-1")
    numbers = "".join(f"{n}\n" for n in range(1, 5001))
    assert result.text == f"Terminal Session: term-1\nComplete Output:\n{numbers}"
    assert result.data["truncated"] is False


async def test_terminal_output_ends_lines_only_at_line_feeds(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call(
            "terminal_start", command=r"printf 'one\342\200\250two\342\200\251\nthree'"
        )
        found = await tools.call("terminal_output", sessionId="term-1", grep="^t")
        paged = await tools.call("terminal_output", sessionId="term-1", limit=1)
    assert found.data["output"] == "2: three"
    assert (paged.data["output"], paged.data["totalLines"]) == ("one\u2028two\u2029\n", 2)


async def test_terminal_stop_terminates_the_session(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="cat")
        result = await tools.call("terminal_stop", sessionId="term-1")
        assert result.text == "Terminal session term-1 terminated."
        again = await tools.call("terminal_stop", sessionId="term-1")
        listed = await tools.call("terminal_list")
    assert again.is_error
    assert again.text == ("there is no session 'term-1'; there are none")
    assert listed.text == "No active terminal sessions."


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("terminal_bash", {"cmd": "echo hi", "workdir": "/tmp"}),
        ("terminal_bash", {"command": "echo hi", "timeout_ms": 5000, "unknown": [1]}),
        ("terminal_bash", {"command": "echo hi", "timeout": 120000, "description": "say hi"}),
        ("terminal_bash", {"command": ["echo", "hi"], "cwd": None}),
    ],
)
async def test_arguments_are_accepted_under_the_names_that_models_know(tmp_path, name, arguments):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call(name, **arguments)
    assert result.data["output"] == "hi\n"


@pytest.mark.parametrize("name", ["timeout_seconds", "timeout_ms", "timeout"])
async def test_time_limit_that_is_no_number_is_an_error_in_any_unit(tmp_path, name):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command="echo hi", **{name: "soon"})
    assert result.is_error
    assert 'timeout_seconds is "soon", but must be a number' in result.text


@pytest.mark.costly
@pytest.mark.parametrize("session", ["session_id", "sessionId", "terminalId", "id"])
@pytest.mark.parametrize("text", ["chars", "stdin", "input"])
async def test_continue_accepts_synonyms(tmp_path, session, text):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="read line; echo got $line")
        result = await tools.call("terminal_continue", **{session: "term-1", text: "it\n"})
    assert "got it\n" in result.data["output"]


async def test_missing_argument_is_an_error_that_names_all_parameters(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_start")
    assert result.is_error
    assert result.text == (
        "terminal_start: command is missing; it takes command (required), cwd, name, cols, rows, "
        "env"
    )


@pytest.mark.parametrize("mode", ["legacy", "auto"])
async def test_host_that_cannot_be_reached_is_an_error_and_the_next_call_tries_again(
    tmp_path, mode
):
    async with mcp_tools(tmp_path, mode=mode) as tools:
        socket = tmp_path / "mcp.sock"
        moved = socket.rename(tmp_path / "moved")
        result = await tools.call("terminal_bash", command="true")
        moved.rename(socket)
        again = await tools.call("terminal_bash", command="echo hi")
    assert result.is_error
    assert result.text.startswith("the host of the terminals cannot be reached: the host at ")
    assert again.data["output"] == "hi\n"


async def test_terminals_that_the_user_has_removed_are_left_out(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        for name in ("removed", "left"):
            await tools.call("terminal_start", command="read x; exit 5", name=name)
        async with user_of(tools.host) as user:
            found = (await user.request("terminal/list"))["terminals"]
            (removed,) = [each for each in found if each.get("name") == "removed"]
            await user.request("terminal/release", {"terminalId": removed["terminalId"]})
        waited = await tools.call("terminal_wait")
        listed = await tools.call("terminal_list")
    assert waited.data["id"] == "left"
    assert [each["id"] for each in listed.data["sessions"]] == ["left"]


async def test_list_leaves_out_terminals_that_the_user_has_removed(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="cat")
        async with user_of(tools.host) as user:
            (found,) = (await user.request("terminal/list"))["terminals"]
            await user.request("terminal/release", {"terminalId": found["terminalId"]})
        listed = await tools.call("terminal_list")
        waited = await tools.call("terminal_wait")
    assert listed.text == "No active terminal sessions."
    assert "there is no session to wait for" in waited.text


SLOW = "(a+)+$"


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        ("terminal_wait", {"pattern": SLOW}),
        ("terminal_continue", {"wait_for": SLOW}),
        ("terminal_output", {"grep": SLOW}),
    ],
)
@pytest.mark.long
async def test_pattern_that_takes_too_long_is_an_error(tmp_path, tool, arguments):
    async with mcp_tools(tmp_path) as tools:
        script = f"echo {'a' * 5000}!; exec cat"
        await tools.call("terminal_start", command=script)
        with trio.fail_after(30):
            result = await tools.call(tool, sessionId="term-1", **arguments)
    assert result.is_error
    assert result.text.startswith(f"the regular expression '{SLOW}' is too slow for this output")


async def test_pattern_is_not_too_slow_when_the_machine_is(monkeypatch):
    monkeypatch.setattr(patterns, "TIMEOUT_S", 0.05)

    def lines():
        yield "one"
        time.sleep(0.1)
        yield "two"

    assert await ModelPattern("t").matching(lines()) == [(1, "two")]


async def test_long_unknown_id_is_not_repeated_whole(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_output", sessionId="x" * 100_000)
    assert result.is_error
    assert f"there is no session '{'x' * 99}…'" in result.text
    assert len(result.text) < 300


async def test_keys_may_be_a_list_in_json(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="cat")
        result = await tools.call("terminal_continue", sessionId="term-1", keys='["a", "Enter"]')
    assert result.data["output"] == "a\na\n"


async def test_results_are_text_that_clients_can_join_unless_structure_is_wanted(tmp_path):
    async with mcp_tools(tmp_path, tool_structured=False) as tools:
        listed = (await tools.client.list_tools()).tools
        assert all(tool.output_schema is None for tool in listed)
        result = await tools.call("terminal_bash", command="echo hi; exit 3")
        assert result.data == {}
        lines = "".join(result.blocks).splitlines()
    assert lines[0].startswith("[exited after")
    assert lines[1:] == ["hi"]


@pytest.mark.parametrize(
    ("shell", "command", "is_short"),
    [
        ({}, "echo hi", True),
        ({}, "echo", False),
        ({}, "echo hi; exit 3", False),
        ({}, "echo hi; kill $$", False),
        ({}, "echo hi; sleep 60 &", False),
        ({"session": "s"}, "echo hi", True),
        ({"session": "s"}, "echo", False),
        ({"session": "s"}, "echo hi; false", False),
        ({"session": "s"}, "echo hi; cd /usr", False),
        ({"session": "s"}, "echo hi; sleep 60 &", False),
        ({"session": "s"}, "echo hi; exit", False),
    ],
)
async def test_success_with_output_is_the_output_alone(
    tmp_path, bash_without_rc, shell, command, is_short
):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command=command, **shell)
    if is_short:
        assert result.blocks == ["hi\n"]
    else:
        assert result.state.startswith("[")
        assert all(block.strip() for block in result.blocks)


@pytest.mark.parametrize(("tool_set", "tool"), [("session", "terminal_bash"), ("claude", "Bash")])
async def test_result_without_output_has_no_empty_block(tmp_path, bash_without_rc, tool_set, tool):
    async with mcp_tools(tmp_path, tool_set) as tools:
        await tools.call(tool, command="true")
        (block,) = (await tools.call(tool, command="true")).blocks
    assert re.fullmatch(r"\[exited after \d+\.\d s, exit code 0\]\n", block)


async def test_client_gets_structure_if_a_table_says_so(tmp_path):
    tables = [ToolsFor(agent="other"), ToolsFor(agent="test-*", structured=True)]
    async with mcp_tools(tmp_path, tool_structured=False, tools_for=tables) as tools:
        assert (await tools.call("terminal_list")).data["sessions"] == []


async def test_structured_results_have_the_line_with_the_state(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="cat")
        results = [
            await tools.call("terminal_list"),
            await tools.call("terminal_output", sessionId="term-1"),
            await tools.call("terminal_screen", sessionId="term-1"),
            await tools.call("terminal_list"),
        ]
    for result in results:
        assert result.data["status"] == result.state


async def test_id_of_a_session_that_is_forgotten_is_not_used_again(tmp_path):
    async with mcp_tools(tmp_path, keep_released=0) as tools:
        await tools.call("terminal_start", command="cat")
        await tools.call("terminal_stop", sessionId="term-1")
        await tools.call("terminal_bash", command="echo two")
        third = await tools.call("terminal_start", command="cat")
        assert third.data["id"] == "term-3"
        again = await tools.call("terminal_stop", sessionId="term-1")
        assert again.is_error
        assert "term-3" in (await tools.call("terminal_list")).text
