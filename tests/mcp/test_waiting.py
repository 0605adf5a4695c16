"""How long calls wait, and what happens to commands that take longer."""

import os
import re
import shutil
import signal
import sys

import anyio
import pytest

from acpterm.api.errors import RequestError
from acpterm.api.roles import Role
from acpterm.config.profiles import Limits, ProfileTable
from acpterm.config.tools import ToolsFor
from acpterm.mcp import call, codex_tools, waiting
from tests.support.depth import DEADLINE_S
from tests.support.mcp import QUICK, mcp_tools


async def test_terminal_bash_continues_in_the_background_at_its_time_limit(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call(
            "terminal_bash", command="echo begun; sleep 60", timeout_seconds=0.5
        )
        assert result.data["state"] == "running"
        assert re.fullmatch(r"\[term-1 running \d+\.\d s · terminal_wait\]", result.state)
        # On a busy machine, the time limit may come before the output.
        assert result.blocks[1:] in ([], ["begun\n"])
        waited = await tools.call("terminal_wait", sessionId="term-1", pattern="begun\n")
        assert result.data["output"] + waited.data["output"] == "begun\n"
        listed = await tools.call("terminal_list")
    assert "term-1" in listed.text


async def test_terminal_bash_is_killed_at_its_time_limit_if_the_settings_say_so(tmp_path):
    for seconds in (0.5, 5):
        async with mcp_tools(tmp_path, tool_at_timeout="kill", kill_grace=0.2) as tools:
            result = await tools.call(
                "terminal_bash", command="echo begun; sleep 60", timeout_seconds=seconds
            )
            listed = await tools.call("terminal_list")
        # On a busy machine, the shorter time may be over before the output.
        if "begun" in result.text:
            break
    assert result.data["state"] == "killed"
    assert result.data["endedBy"] == "timeout"
    assert "at its time limit" in result.state
    assert result.text == "begun\n"
    assert listed.text == "No active terminal sessions."


async def test_terminal_bash_returns_when_the_command_waits_for_input(tmp_path):
    script = "printf 'Continue? '; read answer; echo $answer"
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command=script)
        assert result.data["state"] == "waiting_for_input"
        assert re.fullmatch(
            r"\[term-1 running, \w+ waits for input · terminal_continue\]", result.state
        )
        assert result.text == "Continue? "
        answered = await tools.call("terminal_continue", sessionId="term-1", stdin="yes\n")
    assert answered.data["state"] == "exited"


async def test_terminal_bash_returns_when_the_command_is_stopped(tmp_path):
    script = "timeout 100 sh -c 'read answer'; :"
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command=script)
    assert result.data["state"] == "stopped"
    pid = re.search(r"\(pid (\d+)\)", result.state)[1]
    why = "wants to read the terminal in the background: use timeout --foreground"
    assert result.state == f"[term-1 stopped: sh (pid {pid}) {why} · terminal_stop]"


@pytest.mark.parametrize("shell", [{}, {"session": "main"}])
async def test_editor_that_waits_is_named_with_its_file(tmp_path, shell):
    if not shutil.which("vi"):
        pytest.skip("vi is not installed")
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command="vi -u NONE COMMIT_EDITMSG", **shell)
        # On a busy machine, the call may return between the drawing and the wait for input.
        if "full screen" in result.state and "waits" not in result.state:
            result = await tools.call("terminal_wait", **{"for": "input"})
    assert ", vi waits on COMMIT_EDITMSG · terminal_continue" in result.state


async def test_terminal_continue_returns_when_the_program_does_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(waiting, "_TYPE_TIMEOUT_S", 0.05)
    os.mkfifo(tmp_path / "go")
    script = "stty -echo; echo ready; read x < go; head -n 20 | wc -c"
    async with mcp_tools(tmp_path, **QUICK) as tools:
        await tools.call("terminal_start", command=script, cwd=str(tmp_path))
        lines = f"{'x' * 999}\n" * 20
        typed = await tools.call("terminal_continue", sessionId="term-1", stdin=lines)
        assert typed.data["state"] == "running"
        await anyio.Path(tmp_path / "go").write_text("\n")
        done = await tools.call("terminal_wait", sessionId="term-1", **{"for": "exit"})
    assert done.data["output"].split()[-1:] == ["20000"]


async def test_prompt_for_a_password_points_to_attach_only(tmp_path):
    script = "printf 'Password: '; stty -echo; read secret; sleep 60"
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command=script)
    why = "waits for input, probably a password, for the user alone: acpterm attach term-1]"
    assert result.state.endswith(why)


async def test_terminal_bash_in_the_background_returns_at_once(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call(
            "terminal_bash", command="echo up; sleep 60", run_in_background=True
        )
        # On a busy machine, it returns before the output.
        waited = await tools.call("terminal_wait", sessionId="term-1", pattern="up\n")
    assert result.data["state"] == "running"
    assert result.data["output"] + waited.data["output"] == "up\n"


async def test_call_returns_before_clients_give_up(tmp_path, monkeypatch):
    async with mcp_tools(tmp_path) as tools:
        for seconds in (0.3, 5.0):
            monkeypatch.setattr(call, "BLOCK_MAX_S", seconds)
            result = await tools.call("terminal_bash", command="sleep 60")
            # A start that takes longer is reported as waiting for the user's approval.
            if result.data["state"] == "running":
                break
        monkeypatch.setattr(call, "BLOCK_MAX_S", 0.3)
        waited = await tools.call("terminal_wait", sessionId=result.data["id"])
    assert result.data["state"] == "running"
    assert "not yet · terminal_wait]" in waited.state


async def test_call_with_a_progress_token_sends_progress_and_may_take_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(call, "BLOCK_MAX_S", 0.1)
    monkeypatch.setattr(call, "PROGRESS_INTERVAL_S", 0.1)
    messages = []

    async def on_progress(progress, total, message):
        messages.append(message)
        # On a busy machine, the first messages are about the start.
        if sum(message.startswith("waiting for term-1, ") for message in messages) == 3:
            (tmp_path / "go").touch()

    script = f"until test -e {tmp_path}/go; do sleep 0.05; done"
    async with mcp_tools(tmp_path) as tools:
        result = await tools.call("terminal_bash", command=script, progress=on_progress)
    assert result.data["state"] == "exited"
    assert result.data["endedBy"] == "exited"


async def test_settings_of_an_agent_override_the_general_ones(tmp_path):
    tables = [ToolsFor(agent="other*", crop_output=200), ToolsFor(agent="test-*", crop_output=100)]
    async with mcp_tools(tmp_path, tools_for=tables) as tools:
        result = await tools.call("terminal_bash", command="seq 1 1000")
    assert len(result.data["output"]) < 250
    assert "left out" in result.text


async def test_long_output_shows_its_head_and_tail_and_how_to_read_the_rest(tmp_path):
    async with mcp_tools(tmp_path, tool_crop_output=1000) as tools:
        result = await tools.call("terminal_bash", command="seq 1 5000")
        lines = result.data["output"].splitlines()
        note = next(line for line in lines if line.startswith("…"))
        at = lines.index(note)
        assert lines[0] == "1"
        assert lines[-1] == "5000"
        assert 800 < len(result.data["output"]) <= 1000
        assert sum(len(line) + 1 for line in lines[:at]) <= 200
        left_out = 5000 - (len(lines) - 1)
        assert note == (
            f"… {left_out:,} lines (23 kB) left out: "
            f'terminal_output {{"sessionId":"term-1","offset":{at}}} …'
        )
        page = await tools.call("terminal_output", sessionId="term-1", offset=at, limit=2)
    assert page.text == (
        f"Terminal Session: term-1\nLines {at + 1}-{at + 2} of 5000:\n{at + 1}\n{at + 2}\n"
    )
    assert page.data["remainingLines"] == 5000 - at - 2
    assert f'terminal_output {{"sessionId":"term-1","offset":{at + 2}}}' in page.state


@pytest.mark.parametrize("size", [1000, 1001, 50_000])
async def test_long_line_is_shown_in_as_many_characters_as_the_setting_says(tmp_path, size):
    async with mcp_tools(tmp_path, tool_crop_output=1000) as tools:
        result = await tools.call("terminal_bash", command=f"printf '%0{size}d' 1")
    assert 900 < len(result.text) <= 1000


async def test_terminal_output_finds_lines(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="seq 1 100; exec cat")
        found = await tools.call("terminal_output", sessionId="term-1", grep="^.?7$")
        tail = await tools.call("terminal_output", sessionId="term-1", offset=-2)
        wrong = await tools.call("terminal_output", sessionId="term-1", grep="(")
    assert found.text.splitlines()[1:4] == ["Matches 1-10 of 10:", "7: 7", "17: 17"]
    assert tail.data["output"] == "99\n100\n"
    assert wrong.is_error
    assert "'(' is not a regular expression" in wrong.text


@pytest.mark.long
async def test_terminal_wait_ends_when_a_pattern_matches_new_output(tmp_path):
    script = "echo ready; read line; sleep 0.3; echo ready again; sleep 60"
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command=script)
        result = await tools.call(
            "terminal_continue", sessionId="term-1", stdin="\n", wait_for="ready.*"
        )
        assert 'matched "ready again"' in result.state
        # The first output is not searched: it came before the input.
        waited = await tools.call(
            "terminal_wait", sessionId="term-1", pattern="^ready$", timeout_seconds=0.3
        )
    assert "not yet" in waited.state


async def test_result_says_that_ctrl_z_has_stopped_the_program(tmp_path):
    stops = "import os, signal as s; s.signal(20, lambda *_: os.kill(os.getpid(), s.SIGSTOP))"
    script = f"{sys.executable} -c '{stops}; print(input()); input()'"
    async with mcp_tools(tmp_path, **QUICK) as tools:
        await tools.call("terminal_start", command=script)
        result = await tools.call("terminal_continue", sessionId="term-1", keys="C-z")
        if result.data["state"] != "stopped":
            result = await tools.call("terminal_wait", sessionId="term-1")
        pid = re.search(r"\(pid (\d+)\)", result.state)[1]
        assert f"was stopped by SIGSTOP: kill -CONT {pid} continues it" in result.state
        os.kill(int(pid), signal.SIGCONT)
        went_on = await tools.call("terminal_continue", sessionId="term-1", stdin="on\n")
    assert went_on.data["state"] == "waiting_for_input"


async def test_result_names_the_limit_that_has_ended_the_command(tmp_path):
    profiles = {"short": ProfileTable(base="open", limits=Limits(wall=1))}
    async with mcp_tools(tmp_path, profile="short", profiles=profiles) as tools:
        result = await tools.call("terminal_bash", command="sleep 60")
    assert ", at the limit wall" in result.state
    assert "time limit" not in result.state + result.text


@pytest.mark.costly
@pytest.mark.parametrize(
    ("command", "arguments", "expected"),
    [
        ("exit 4", {}, "exit code 4"),
        ("read line", {}, "waits for input"),
        ("sleep 60", {"for": "idle", "idle_seconds": 0.2}, ", no output for 0.2 s"),
        ("echo up; sleep 60", {"pattern": "up"}, ', matched "up"'),
    ],
)
async def test_terminal_wait_says_which_condition_came(tmp_path, command, arguments, expected):
    async with mcp_tools(tmp_path, **QUICK) as tools:
        until = f"until test -e {tmp_path}/go; do sleep 0.05; done"
        await tools.call("terminal_start", command=f"{until}; {command}")
        (tmp_path / "go").touch()
        result = await tools.call("terminal_wait", sessionId="term-1", **arguments)
    assert expected in result.state
    assert result.state.startswith("[term-1 ")


# A server that reads its stdin while it starts, as vite, nodemon and jest do.
SERVER = """
python3 -c "
import os, threading
def serve():
    open('{go}').read()
    print('listening on 5173', flush=True)
threading.Thread(target=serve).start()
print('starting', flush=True)
input()"
"""


async def _pipe_when(path):
    """Let the server of `SERVER` print, once it has opened the pipe."""
    async with await anyio.open_file(path, "w") as pipe:
        await pipe.write("go")


@pytest.mark.parametrize("shell", [False, True])
async def test_wait_for_a_text_does_not_end_at_a_server_that_reads_its_stdin(tmp_path, shell):
    go = tmp_path / "go"
    os.mkfifo(go)
    command = SERVER.format(go=go)
    async with mcp_tools(tmp_path) as tools:
        if shell:
            first = await tools.call("terminal_bash", command=command, session="s")
        else:
            first = await tools.call("terminal_start", command=command)
        assert first.data["state"] == "waiting_for_input"
        for wait in ({}, {"for": ["exit", "text"]}):
            waited = await tools.call(
                "terminal_wait",
                sessionId="term-1",
                pattern="listening",
                timeout_seconds=0.5,
                **wait,
            )
            # A shell's result does not say so.
            assert shell or "not yet" in waited.state
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_pipe_when, go)
            found = await tools.call("terminal_wait", sessionId="term-1", pattern="listening")
    assert 'matched "listening"' in found.state


@pytest.mark.long
async def test_wait_for_a_text_ends_at_a_new_prompt(tmp_path):
    script = "read x; printf 'Overwrite? '; read y; sleep 60"
    async with mcp_tools(tmp_path, **QUICK) as tools:
        await tools.call("terminal_start", command=script)
        await tools.call("terminal_continue", sessionId="term-1", keys=["Enter"], wait_for=r"\n")
        found = await tools.call("terminal_wait", sessionId="term-1", pattern="written")
        again = await tools.call(
            "terminal_wait", sessionId="term-1", pattern="written", timeout_seconds=0.3
        )
    assert found.data["state"] == "waiting_for_input"
    assert "not yet" not in found.state
    assert "not yet" in again.state


async def test_idle_shells_do_not_end_a_wait_for_any_session(tmp_path):
    go = tmp_path / "go"
    os.mkfifo(go)
    async with mcp_tools(tmp_path, **QUICK) as tools:
        await tools.call("terminal_bash", command="cd /", session="build")
        await tools.call("terminal_start", command="bash --norc -i", name="sh")
        # On a busy machine, that call may return before the prompt.
        await tools.call("terminal_wait", sessionId="sh", **{"for": "input"})
        await tools.call("terminal_start", command=f"read x <{go}; exit 3", name="job")
        listed = await tools.call("terminal_list")
        early = await tools.call("terminal_wait", timeout_seconds=0.5)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(_pipe_when, go)
            waited = await tools.call("terminal_wait")
    assert "not yet" in early.state
    assert (waited.data["id"], waited.data["exitCode"]) == ("job", 3)
    rows = {each["command"]: each["idle"] for each in listed.data["sessions"]}
    assert rows["shell build"]
    assert rows["bash --norc -i"]
    assert not any(each["waitingForInput"] for each in listed.data["sessions"])
    assert "| Idle    |" in listed.text


async def test_wait_for_an_idle_shell_says_at_once_that_it_is_idle(tmp_path, bash_without_rc):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_bash", command="cd /", session="build")
        for _ in range(2):
            waited = await tools.call("terminal_wait", sessionId="term-1")
            assert ', bash is at its prompt · terminal_bash {"session":"build"}]' in waited.state
            assert "waits for input" not in waited.state + waited.text
        await tools.call("terminal_continue", sessionId="term-1", stdin="sleep 0.5; echo typed\n")
        await tools.call("terminal_wait", sessionId="term-1")
        whole = await tools.call("terminal_output", sessionId="term-1")
    assert "\ntyped\n" in whole.text


@pytest.mark.parametrize("command", ["cat", "bash --norc -i"])
async def test_empty_poll_does_not_end_at_a_state_that_was_said(tmp_path, monkeypatch, command):
    monkeypatch.setattr(codex_tools, "POLL_MIN_MS", 300)
    async with mcp_tools(tmp_path, "codex") as tools:
        await tools.call("exec_command", cmd=command, tty=True)
        poll = await tools.call("write_stdin", session_id=1)
    assert poll.data["wall_time_seconds"] >= 0.3


async def test_terminal_wait_returns_the_first_of_several_sessions(tmp_path):
    script = f"until test -e {tmp_path}/go; do sleep 0.05; done; exit 7"
    async with mcp_tools(tmp_path, **QUICK) as tools:
        await tools.call("terminal_start", command="sleep 60")
        await tools.call("terminal_start", command=script)
        (tmp_path / "go").touch()
        result = await tools.call("terminal_wait")
    assert result.data["id"] == "term-2"
    assert result.data["exitCode"] == 7


async def test_terminal_screen_and_keys_drive_a_full_screen_program(tmp_path):
    text = tmp_path / "text"
    text.write_text("".join(f"line {n}\n" for n in range(200)))
    async with mcp_tools(tmp_path) as tools:
        await tools.call(
            "terminal_start", command=f"less {text}", cols=40, rows=10, env={"LESS": ""}
        )
        first = await tools.call("terminal_screen", sessionId="term-1")
        await tools.call("terminal_continue", sessionId="term-1", keys=["PageDown"])
        second = first
        with anyio.fail_after(DEADLINE_S):
            while not second.text.startswith("line 9\n"):
                second = await tools.call("terminal_screen", sessionId="term-1")
        wrong = await tools.call("terminal_continue", sessionId="term-1", keys=["NoSuchKey"])
    assert first.data["alternate"] is True
    assert first.text.startswith("line 0\nline 1\n")
    assert second.data["screenHash"] != first.data["screenHash"]
    assert "40x10, alternate screen" in first.state
    assert wrong.is_error
    assert "nothing was typed" in wrong.text


async def test_terminal_continue_types_nothing_when_a_key_is_unknown(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="exec cat")
        wrong = await tools.call(
            "terminal_continue", sessionId="term-1", stdin="text\n", keys=["Enter", "NoSuchKey"]
        )
        result = await tools.call("terminal_continue", sessionId="term-1", stdin="more\n")
    assert "nothing was typed into term-1: there is no key 'NoSuchKey'" in wrong.text
    assert result.data["output"] == "more\nmore\n"


async def test_terminal_continue_types_nothing_when_the_mode_of_the_keys_is_unknown(
    tmp_path, monkeypatch
):
    async def fail(*_args):
        raise RequestError(-32603, "no screen")

    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="exec cat")
        with monkeypatch.context() as patch:
            patch.setattr(Role, "screen", fail)
            failed = await tools.call(
                "terminal_continue", sessionId="term-1", stdin="text\n", keys=["Up"]
            )
        result = await tools.call("terminal_continue", sessionId="term-1", stdin="more\n")
    assert "nothing was typed into term-1: no screen" in failed.text
    assert result.data["output"] == "more\nmore\n"


async def test_terminal_continue_says_that_the_text_was_typed_when_the_keys_are_refused(
    tmp_path, monkeypatch
):
    write = Role.write

    async def refuse_enter(self, terminal, data):
        if data in ("\r", b"\r"):
            raise RequestError(-32603, "the program has exited")
        await write(self, terminal, data)

    monkeypatch.setattr(Role, "write", refuse_enter)
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="exec cat")
        failed = await tools.call(
            "terminal_continue", sessionId="term-1", stdin="text\n", keys=["Enter"]
        )
        result = await tools.call("terminal_continue", sessionId="term-1")
    assert failed.text == (
        "the text was typed, but no keys were typed into term-1: the program has exited"
    )
    assert result.data["output"] == "text\ntext\n"


@pytest.mark.costly
@pytest.mark.parametrize("identifiers", [[], None])
async def test_wait_for_no_session_in_particular_is_for_any(tmp_path, identifiers):
    async with mcp_tools(tmp_path) as tools:
        none = await tools.call("terminal_wait", sessionId=identifiers)
        await tools.call("terminal_start", command="printf 'Go? '; read go")
        result = await tools.call("terminal_wait", sessionId=identifiers)
    assert none.is_error
    assert "there is no session to wait for" in none.text
    assert result.data["id"] == "term-1"


@pytest.mark.costly
@pytest.mark.parametrize(
    "pattern", ["(?:(?:a{1000}){1000}){1000}", "(?:a{1000})(?#c){1000}", "a{1000000}", "(" * 600]
)
async def test_pattern_that_takes_much_memory_is_refused(tmp_path, pattern):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="echo a; exec cat")
        result = await tools.call("terminal_output", sessionId="term-1", grep=pattern)
    assert result.is_error
    assert "regular expression" in result.text


@pytest.mark.costly
@pytest.mark.parametrize(
    "pattern", [r"^[0-9a-f]{64} [0-9a-f]{64}$", r"\{100000\}|[{]100000}|(0|f){64} .*"]
)
async def test_pattern_with_usual_repetitions_is_accepted(tmp_path, pattern):
    command = f"echo {'0f' * 32} {'f0' * 32}; exec cat"
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command=command)
        result = await tools.call("terminal_output", sessionId="term-1", grep=pattern)
    assert result.data["lines"] == 1
