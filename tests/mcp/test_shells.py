"""Commands in persistent shells."""

import re
import shutil

import anyio
import pytest

from acpterm.api import shell_process
from acpterm.config.tools import ToolsFor
from acpterm.mcp import call, claude_tools
from acpterm.providers import landlock_exec
from acpterm.pty import processes
from tests.support.depth import DEADLINE_S
from tests.support.mcp import DANGEROUS, answer, mcp_tools, until_pending
from tests.support.polling import poll
from tests.support.user import user_of

pytestmark = [pytest.mark.long, pytest.mark.usefixtures("bash_without_rc")]


async def test_commands_of_a_session_share_directory_and_variables(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        first = await tools.call("terminal_bash", session="build", command="cd /usr; x=5; false")
        second = await tools.call("terminal_bash", session="build", command="pwd; echo $x")
        other = await tools.call("terminal_bash", session="other", command="echo ${x:-none}")
    assert re.fullmatch(r"\[exited after \d+\.\d s, exit code 1, in /usr\]\n", first.text)
    assert second.blocks == ["/usr\n5\n"]
    assert first.data["exitCode"] == 1
    assert first.data["cwd"] == "/usr"
    assert second.data["output"] == "/usr\n5\n"
    assert other.data["output"] == "none\n"


async def test_busy_shell_is_waited_for_and_has_the_exit_code(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call(
            "terminal_bash",
            session="build",
            command=f"cd /usr; until test -e {tmp_path}/go; do sleep 0.05; done; (exit 7)",
            timeout_seconds=0.5,
        )
        assert result.data["state"] == "running"
        busy = await tools.call("terminal_bash", session="build", command="true")
        assert busy.is_error
        assert "a command still runs in the shell 'build'" in busy.text
        (tmp_path / "go").touch()
        waited = await tools.call("terminal_wait", sessionId="build")
    assert waited.data["id"] == result.data["id"]
    assert waited.data["exitCode"] == 7
    assert waited.state.endswith(", exit code 7, in /usr]")


async def test_decimal_name_of_a_shell_is_not_taken_for_the_number_of_a_session(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        number = await tools.call("terminal_start", command="cat")
        shell = await tools.call(
            "terminal_bash", session="1", command="sleep 600", timeout_seconds=0
        )
        stopped = await tools.call("terminal_stop", sessionId="1")
    assert number.data["id"] == "term-1"
    assert stopped.data["id"] == shell.data["id"] != "term-1"


async def test_claude_bash_keeps_directory_and_variables(tmp_path):
    async with mcp_tools(tmp_path, "claude") as tools:
        await tools.call("Bash", command="cd /usr && export NAME=value")
        result = await tools.call("Bash", command="pwd; echo $NAME")
    assert result.text == "/usr\nvalue\n"


@pytest.mark.parametrize("before", [(), ("true",)], ids=["first", "later"])
async def test_command_that_ends_its_shell_has_its_output_and_exit_code(tmp_path, before):
    async with mcp_tools(tmp_path) as tools:
        for command in before:
            await tools.call("terminal_bash", session="build", command=command)
        ended = await tools.call("terminal_bash", session="build", command="echo out; exit 3")
        after = await tools.call("terminal_bash", session="build", command="echo on")
        listed = await tools.call("terminal_list")
    assert not ended.is_error
    assert (ended.data["exitCode"], ended.data["output"]) == (3, "out\n")
    assert "the shell has ended" in ended.state
    assert after.data["output"] == "on\n"
    assert len(listed.data["sessions"]) == 1


async def test_first_claude_bash_that_ends_its_shell_has_its_output(tmp_path):
    async with mcp_tools(tmp_path, "claude") as tools:
        result = await tools.call("Bash", command="echo out; exit 3")
    assert "out\n" in result.text
    assert result.data["exitCode"] == 3


@pytest.mark.exhaustive
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


async def test_refused_command_does_not_reach_the_shell(tmp_path, monkeypatch):
    monkeypatch.setattr(call, "BLOCK_MAX_S", 1)
    async with mcp_tools(tmp_path, profile="guarded") as tools:
        result = await tools.call("terminal_bash", session="s", command=DANGEROUS)
    assert result.data["state"] == "approval_pending"


@pytest.mark.parametrize(
    ("name", "bash", "shell", "stop"),
    [
        ("session", "terminal_bash", {"session": "s"}, "terminal_stop"),
        ("claude", "Bash", {}, "KillShell"),
    ],
)
async def test_background_of_a_shell_is_reported_until_it_is_ended(
    tmp_path, name, bash, shell, stop
):
    async with mcp_tools(tmp_path, name) as tools:
        before = await tools.call(bash, command="true", **shell)
        began = await tools.call(bash, command="sleep 600 >/dev/null & echo $!", **shell)
        later = await tools.call(bash, command="true", **shell)
        ended = await tools.call(bash, command="exit 5", **shell)
        pid = int(began.data["output"].strip().splitlines()[-1])
        running = f"still running in term-1: sleep 600 (pid {pid}) · {stop} ends it"
        assert "still running" not in before.state
        assert running in began.state
        assert "still running" not in later.state
        assert [each["pid"] for each in later.data["background"]] == [pid]
        assert running in ended.state
        assert ended.data["exitCode"] == 5
        if name == "session":
            (listed,) = (await tools.call("terminal_list")).data["sessions"]
            assert (listed["id"], listed["background"]) == ("term-1", [f"sleep 600 (pid {pid})"])
        after = await tools.call(bash, command="echo on", **shell)
        assert after.data["output"].endswith("on\n")
        assert processes.identity(pid)
        key = "sessionId" if name == "session" else "shell_id"
        await tools.call(stop, **{key: "term-1"})
        await poll(lambda: processes.identity(pid) is None)


async def test_list_says_what_runs_beside_an_idle_shell(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_bash", session="s", command="sleep 600 &")
        listed = await tools.call("terminal_list")
    (shell,) = listed.data["sessions"]
    assert shell["command"] == "shell s"
    assert shell["background"][0].startswith("sleep 600 (pid ")
    assert "| Yes " in listed.text


async def test_list_shows_a_command_whose_end_was_not_reported(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        command = f"until test -e {tmp_path}/go; do sleep 0.05; done; (exit 7)"
        await tools.call("terminal_bash", session="s", command=command, timeout_seconds=0.3)
        (tmp_path / "go").touch()
        with anyio.fail_after(DEADLINE_S):
            while (await tools.call("terminal_list")).data["sessions"][0]["running"]:
                await anyio.sleep(0.05)
        typed = await tools.call("terminal_continue", sessionId="term-1", stdin="touch no\n")
        assert "nothing was typed into term-1: its command has ended" in typed.text
        result = await tools.call("terminal_continue", sessionId="term-1")
    assert result.data["exitCode"] == 7


async def test_continue_returns_the_new_output_and_the_end_of_a_shells_command(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        asked = await tools.call(
            "terminal_bash", session="s", command="read -p 'name? ' n; echo hi $n; (exit 9)"
        )
        assert asked.state.endswith(", bash waits for input · terminal_continue]")
        ended = await tools.call("terminal_continue", sessionId="term-1", stdin="bob\n")
    assert "exit code 9" in ended.state
    assert ended.text == "bob\nhi bob\n"
    assert (ended.data["complete"], ended.data["endedBy"]) == (True, "exited")
    assert ended.data["totalBytes"] == len("name? bob\nhi bob\n")


async def test_password_of_a_shells_command_is_left_to_the_user(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        asked = await tools.call("terminal_bash", session="s", command="read -s -p 'Password: ' n")
    assert "probably a password, for the user alone: acpterm attach term-1]" in asked.state
    assert "terminal_continue" not in asked.state


async def test_command_that_waits_for_approval_runs_in_its_shell_when_allowed(tmp_path):
    async with mcp_tools(tmp_path, profile="guarded") as tools:
        await tools.call("terminal_bash", session="s", command="x=5; cd /usr")
        arguments = {"session": "s", "command": f"{DANGEROUS}; echo $x; pwd; (exit 6)"}
        result = await tools.call("terminal_bash", **arguments, timeout_seconds=0.6)
        assert result.data["state"] == "approval_pending"
        assert result.data["id"] == "pending-1"
        assert "the user can: acpterm approvals -f" in result.state
        again = await tools.call("terminal_bash", session="s", command="true")
        assert "a command waits for the user's approval (pending-1)" in again.text
        await answer(tools.host, "allow")
        waited = await tools.call("terminal_wait", sessionId="pending-1")
        after = await tools.call("terminal_bash", session="s", command="echo $x")
    assert (waited.data["id"], waited.data["exitCode"]) == ("term-1", 6)
    assert waited.data["output"].endswith("5\n/usr\n")
    assert after.data["output"] == "5\n"


async def test_command_of_a_shell_that_waits_for_approval_can_be_withdrawn(tmp_path):
    async with mcp_tools(tmp_path, profile="guarded") as tools:
        await tools.call("terminal_bash", session="s", command=DANGEROUS, run_in_background=True)
        await until_pending(tools.host, 1)
        await tools.call("terminal_stop", sessionId="pending-1")
        await until_pending(tools.host, 0)
        after = await tools.call("terminal_bash", session="s", command="echo on")
    assert after.data["output"] == "on\n"


async def test_claude_bash_that_waits_for_approval_leaves_a_new_shell_for_the_next(tmp_path):
    async with mcp_tools(tmp_path, "claude", profile="guarded") as tools:
        await tools.call("Bash", command="cd /usr")
        command = f"{DANGEROUS}; pwd; (exit 6)"
        result = await tools.call("Bash", command=command, timeout=600)
        assert 'BashOutput {"bash_id":"pending-1"}' in result.state
        meanwhile = await tools.call("Bash", command="pwd")
        assert meanwhile.data["output"] == "/usr\n"
        await answer(tools.host, "allow")
        with anyio.fail_after(DEADLINE_S):
            output = result
            while not output.data["complete"]:
                output = await tools.call("BashOutput", bash_id="pending-1")
    assert output.data["exitCode"] == 6


async def test_shell_runs_at_the_provider_of_the_agent(tmp_path, monkeypatch):
    if landlock_exec.abi() < landlock_exec.ABI_MIN:
        pytest.skip("requires Linux 6.12 with Landlock")
    (tmp_path / "project").mkdir()
    monkeypatch.chdir(tmp_path / "project")
    tables = [ToolsFor(agent="test-*", provider="landlock")]
    async with mcp_tools(tmp_path, tools_for=tables) as tools:
        result = await tools.call("terminal_bash", session="s", command="true")
        assert not result.is_error, result.text
        async with user_of(tools.host) as user:
            (terminal,) = (await user.request("terminal/list"))["terminals"]
    assert terminal["provider"] == "landlock"


@pytest.mark.exhaustive
async def test_command_that_was_typed_late_is_reported_as_running(tmp_path, monkeypatch):
    (tmp_path / ".bashrc").write_text("sleep 1.5")
    monkeypatch.setattr(call, "BLOCK_MAX_S", 3.0)
    async with mcp_tools(tmp_path) as tools:
        began = anyio.current_time()
        late = await tools.call("terminal_bash", session="s", command="sleep 3; (exit 7)")
        assert anyio.current_time() - began < 4.5
        assert late.data["state"] == "running"
        waited = await tools.call("terminal_wait", sessionId=late.data["id"])
    assert waited.data["exitCode"] == 7


@pytest.mark.exhaustive
async def test_shell_that_is_not_ready_in_time_has_run_nothing(tmp_path, monkeypatch):
    (tmp_path / ".bashrc").write_text("read line")
    monkeypatch.setattr(call, "BLOCK_MAX_S", 0.5)
    async with mcp_tools(tmp_path) as tools:
        late = await tools.call("terminal_bash", session="s", command="true")
    assert late.is_error
    assert "the command was not run in the shell" in late.text


async def test_new_shell_starts_in_cwd_and_another_cwd_is_an_error(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        first = await tools.call("terminal_bash", session="s", command="pwd", cwd="/usr")
        same = await tools.call("terminal_bash", session="s", command="pwd", cwd="/usr/")
        other = await tools.call("terminal_bash", session="s", command="pwd", cwd="/")
    assert first.data["output"] == same.data["output"] == "/usr\n"
    assert "the shell 's' is in /usr: use cd in the command" in other.text


async def test_background_command_in_a_shell_returns_at_once(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        with anyio.fail_after(DEADLINE_S):
            result = await tools.call(
                "terminal_bash", session="s", command="sleep 600", run_in_background=True
            )
    assert result.data["state"] == "running"


async def test_wait_for_a_shell_has_the_conditions_of_the_call(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        running = await tools.call("terminal_bash", session="s", command="echo Name:; read x; true")
        assert running.data["state"] == "waiting_for_input"
        identifier = running.data["id"]
        idle = await tools.call(
            "terminal_wait", sessionId=identifier, **{"for": "idle"}, idle_seconds=0.3
        )
        assert "no output for 0.3 s" in idle.text
        began = anyio.current_time()
        end = await tools.call(
            "terminal_wait", sessionId=identifier, **{"for": "exit"}, timeout_seconds=1
        )
        assert anyio.current_time() - began > 0.9
        assert end.data["state"] == "running"


@pytest.mark.exhaustive
async def test_wait_for_several_ends_with_the_command_of_a_shell(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        other = await tools.call("terminal_bash", command="sleep 600", run_in_background=True)
        busy = await tools.call(
            "terminal_bash", session="s", command="sleep 1; (exit 7)", timeout_seconds=0.2
        )
        first = await tools.call("terminal_wait", sessionId=[other.data["id"], busy.data["id"]])
    assert first.data["exitCode"] == 7


async def test_parallel_calls_of_claude_bash_take_turns(tmp_path):
    results = []
    async with mcp_tools(tmp_path, "claude") as tools:

        async def run(text):
            results.append((await tools.call("Bash", command=f"echo {text}; sleep 0.2")).text)

        async with anyio.create_task_group() as tasks:
            for text in ("a", "b", "c"):
                tasks.start_soon(run, text)
    assert sorted(results) == ["a\n", "b\n", "c\n"]


@pytest.mark.exhaustive
async def test_shell_that_was_set_aside_is_closed_when_its_end_was_reported(tmp_path):
    async with mcp_tools(tmp_path, "claude") as tools:
        slow = await tools.call("Bash", command="sleep 0.6", timeout=100)
        identifier = slow.data["id"]
        async with user_of(tools.host) as user:
            assert len((await user.request("terminal/list"))["terminals"]) == 1
        with anyio.fail_after(DEADLINE_S):
            while "completed" not in (await tools.call("BashOutput", bash_id=identifier)).text:
                await anyio.sleep(0.05)
        async with user_of(tools.host) as user:
            assert (await user.request("terminal/list"))["terminals"] == []


@pytest.mark.exhaustive
async def test_new_output_of_a_shell_is_complete_after_a_flood(tmp_path, monkeypatch):
    monkeypatch.setattr(shell_process, "OUTPUT_BYTES", 10)
    command = f"echo 12345678901234; until test -e {tmp_path}/go; do sleep 0.05; done; echo new"
    async with mcp_tools(tmp_path, "claude") as tools:
        slow = await tools.call("Bash", command=f"{command}; sleep 600", timeout=500)
        (tmp_path / "go").touch()
        texts = ""
        with anyio.fail_after(DEADLINE_S):
            while "new\n" not in texts:
                texts += (await tools.call("BashOutput", bash_id=slow.data["id"])).text
    assert "4\n" not in texts


async def test_output_of_a_busy_shell_is_new_and_matches_and_is_cropped(tmp_path, monkeypatch):
    # All output comes in one result, since that waits until the command waits for input.
    monkeypatch.setattr(claude_tools, "CATCH_UP_S", DEADLINE_S)
    command = f"echo 1 old; until test -e {tmp_path}/go; do sleep 0.05; done; seq 10000; read line"
    async with mcp_tools(tmp_path, "claude") as tools:
        slow = await tools.call("Bash", command=command, timeout=500)
        (tmp_path / "go").touch()
        result = await tools.call("BashOutput", bash_id=slow.data["id"], filter="^[1-6]")
    output = result.data["output"]
    assert f"<stdout>\n{output.rstrip()}\n</stdout>" in result.text
    # On a busy machine, the first call may return before the first line.
    assert (slow.data["output"] + output).count("1 old\n") == 1
    assert output.removeprefix("1 old\n").startswith("1\n2\n3\n4\n5\n6\n10\n")
    assert "left out: run the command again with its output in a file" in output
    assert output.endswith("\n10000\n")
    assert len(output) < 31_000
    assert result.data["truncated"]


@pytest.mark.long
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
async def test_lines_that_hand_over_commands_are_not_shown(tmp_path, monkeypatch, shell):
    if not (path := shutil.which(shell)):
        pytest.skip(f"{shell} is not installed")
    monkeypatch.setenv("SHELL", path)
    monkeypatch.setenv("HOME", str(tmp_path))
    async with mcp_tools(tmp_path) as tools:
        for command in ("echo one; echo two", "printf incomplete"):
            await tools.call("terminal_bash", command=command, session="s")
        await tools.call("terminal_continue", sessionId="term-1", stdin="echo three\n")
        whole = await tools.call("terminal_output", sessionId="term-1")
        since = await tools.call("terminal_output", sessionId="term-1", since=0)
        resource = await tools.client.read_resource("acpterm://terminal/term-1")
    for text in (whole.text, since.text, resource.contents[0].text):
        assert {"one", "two", "three"} <= set(text.split("\n"))
        # zsh and fish overwrite it in the text.
        assert shell != "bash" or "incomplete" in text
        assert "acpterm_" not in text
        assert ">/dev/null" not in text
        assert "/2" not in text


async def test_command_that_no_shell_can_be_given_is_an_error_in_the_result(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        refused = await tools.call("terminal_bash", session="build", command="echo a\0b")
        later = await tools.call("terminal_bash", session="build", command="echo c")
    assert refused.is_error
    assert "must not contain NUL (index 6)" in refused.text
    assert later.text == "c\n"
