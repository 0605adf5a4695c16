"""What the pattern of a wait matches: new output, without the echo of what was typed."""

import pytest
import trio

from tests.support.depth import DEADLINE_S
from tests.support.mcp import QUICK, mcp_tools


@pytest.mark.long
@pytest.mark.parametrize("shell", ["sh", "bash --norc"])
async def test_pattern_does_not_match_the_echo_of_what_was_typed(tmp_path, shell):
    async with mcp_tools(tmp_path, cols=120) as tools:
        await tools.call("terminal_start", command=shell)
        for padding in ("", ": a long line that the shell has to wrap; " * 4):
            found = await tools.call(
                "terminal_continue",
                sessionId="term-1",
                stdin=f"{padding}sleep 0.5; echo BUILD_$((1+1)); echo BUILD_DONE\n",
                wait_for="BUILD_DONE",
            )
            assert 'matched "BUILD_DONE"' in found.state
            assert "\nBUILD_2\nBUILD_DONE" in found.data["output"]


@pytest.mark.parametrize("pattern", ["read", "read x", "x; echo", r"go\W"])
async def test_pattern_does_not_match_an_echo_that_comes_in_parts(tmp_path, pattern):
    # The program echoes what it reads, one character after the other.
    script = (
        "import os,sys,time,tty; tty.setraw(0); print('up', flush=True)\n"
        "while (c := os.read(0, 1)) != b'\\r': os.write(1, c); time.sleep(0.01)\n"
        "print('\\r\\nend', flush=True); time.sleep(60)\n"
    )
    (tmp_path / "slow.py").write_text(script)
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="python3 slow.py", cwd=str(tmp_path))
        found = await tools.call(
            "terminal_continue",
            sessionId="term-1",
            stdin="read x; echo go on",
            keys="Enter",
            wait_for=f"{pattern}|end",
        )
    assert 'matched "end"' in found.state


async def test_pattern_that_was_typed_matches_what_the_program_prints(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="while read x; do sleep 0.2; echo $x; done")
        found = await tools.call(
            "terminal_continue", sessionId="term-1", stdin="word\n", wait_for="word"
        )
        assert found.data["output"] == "word\nword\n"
        await tools.call("terminal_start", command="stty -echo; cat", name="silent")
        found = await tools.call(
            "terminal_continue", sessionId="silent", stdin="word\n", wait_for="word"
        )
    assert 'matched "word"' in found.state


async def test_wait_for_what_a_result_has_shown_says_so_once(tmp_path):
    async with mcp_tools(tmp_path) as tools:
        await tools.call("terminal_start", command="printf 'ready at '; read x; echo 5173; cat")
        wait = {"sessionId": "term-1", "pattern": "ready", "timeout_seconds": 0.3}
        shown = await tools.call("terminal_wait", **wait)
        again = await tools.call("terminal_wait", **wait, **{"for": "text"})
        since = await tools.call("terminal_wait", **wait, since=0)
        await tools.call("terminal_continue", sessionId="term-1", stdin="x\n")
        typed = await tools.call("terminal_wait", **wait, **{"for": "text"})
    assert 'an earlier result has shown "ready": call again for the next' in shown.state
    assert ", not yet" in again.state
    assert 'matched "ready"' in since.state
    assert ", not yet" in typed.state


async def test_match_since_a_position_leaves_what_was_shown_to_a_later_wait(tmp_path):
    async with mcp_tools(tmp_path, **QUICK) as tools:
        await tools.call("terminal_start", command="seq 100; read x; echo ready steady; cat")
        await tools.call("terminal_wait", sessionId="term-1", pattern="100", since=0)
        await tools.call("terminal_continue", sessionId="term-1", stdin="x\n", wait_for="ready")
        await tools.call("terminal_wait", sessionId="term-1", pattern="99", since=0)
        wait = {"sessionId": "term-1", "pattern": "steady", "timeout_seconds": 0.3}
        shown = await tools.call("terminal_wait", **wait)
    assert "an earlier result has shown" in shown.state


async def test_new_output_matches_before_output_that_was_shown(tmp_path):
    go = "until [ -e go ]; do sleep 0.02; done"
    script = f"echo test 1 passed; {go}; echo test 2 passed; cat"
    async with mcp_tools(tmp_path, **QUICK) as tools:
        started = await tools.call("terminal_start", command=script, cwd=str(tmp_path))
        assert started.data["output"] == "test 1 passed\n"
        (tmp_path / "go").touch()
        # This does not count as a result that has shown it.
        with trio.fail_after(DEADLINE_S):
            while "test 2" not in (await tools.call("terminal_output", sessionId="term-1")).text:
                pass
        found = await tools.call("terminal_wait", sessionId="term-1", pattern=r"test \d passed")
    assert 'matched "test 2 passed"' in found.state


async def test_echo_that_a_result_has_shown_is_no_match_later(tmp_path):
    async with mcp_tools(tmp_path, **QUICK) as tools:
        await tools.call("terminal_start", command="bash --norc")
        typed = f"until test -e {tmp_path}/go; do sleep 0.05; done; echo BUILD_DONE\n"
        await tools.call("terminal_continue", sessionId="term-1", stdin=typed)
        (tmp_path / "go").touch()
        found = await tools.call("terminal_wait", sessionId="term-1", pattern="BUILD_DONE")
    assert 'matched "BUILD_DONE"' in found.state
    assert found.data["output"].startswith("BUILD_DONE")


async def test_pattern_matches_a_line_whose_beginning_a_result_has_shown(tmp_path):
    script = "printf 'ready '; until [ -e go ]; do sleep 0.05; done; echo at 5173; cat"
    async with mcp_tools(tmp_path, **QUICK) as tools:
        await tools.call("terminal_start", command=script, cwd=str(tmp_path))
        (tmp_path / "go").touch()
        found = await tools.call("terminal_wait", sessionId="term-1", pattern=r"ready at \d+")
    assert 'matched "ready at 5173"' in found.state
