"""`acpterm replay`: play a terminal or a recording, and restore the window."""

import json

import pytest
import trio

from acpterm.terminal.vt.paint import LEAVE
from tests.support.commands import command_environment, run
from tests.support.depth import DEADLINE_S
from tests.support.hosts import agent_here
from tests.support.starting import ACPTERM
from tests.support.user import user_terminals_at


def cast(file, *events, cols=80, rows=24):
    lines = [{"version": 2, "width": cols, "height": rows}, *events]
    file.write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return str(file)


async def window_with(window, path, *words, **more):
    """Run `acpterm replay` in a window, and record its output."""
    env = [{"name": name, "value": value} for name, value in command_environment(path).items()]
    args = [*ACPTERM[1:], "replay", *words]
    own = {"format": "raw", **more}
    return await window.create(ACPTERM[0], args=args, env=env, own=own)


@pytest.mark.long
async def test_terminal_is_played_and_the_window_restored(agent, path):
    async with user_terminals_at(path) as window:
        terminal = await agent.create_ended(r"printf '\033[?25lone\n'; sleep 0.2; printf two")
        playback = await window_with(window, path, terminal)
        assert (await window.wait(playback))["exitCode"] == 0
        output = (await window.output(playback))["output"]
        body = output.replace("\r\r\n", "\r\n")
        assert body.startswith("\x1b[?25lone\r\ntwo")
        assert body.endswith(LEAVE.decode() + "\r\n")
        await window.release(playback)


async def test_everything_is_printed_at_once_without_a_window(path, tmp_path):
    file = cast(tmp_path / "a.cast", [0, "o", "one\r\n"], [1000, "o", "two\r\n"])
    with trio.fail_after(DEADLINE_S):
        assert await run(path, "replay", file) == (0, "one\r\ntwo\r\n", "")


@pytest.mark.long
async def test_file_needs_no_daemon_and_takes_precedence_over_a_terminal(tmp_path, monkeypatch):
    cast(tmp_path / "name", [0, "o", "file"])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", __file__.partition("/tests/")[0])
    path = str(tmp_path / "no" / "agent.sock")
    assert await run(path, "replay", "name") == (0, "file", "")
    done = await run(path, "replay", "other")
    assert done.status == 1


@pytest.mark.long
async def test_speed_and_idle_limit_are_applied(path, tmp_path):
    file = cast(tmp_path / "a.cast", [0, "o", "one"], [100, "o", "two"], [110, "o", "three"])
    async with agent_here() as window:
        playback = await window_with(window, path, file, "--speed", "10", "--idle-limit", "1")
        with trio.fail_after(DEADLINE_S):
            await window.wait(playback)
        assert "onetwothree" in (await window.output(playback))["output"]
        await window.release(playback)


@pytest.mark.long
async def test_ctrl_c_ends_the_playback_and_restores_the_window(path, tmp_path):
    file = cast(tmp_path / "a.cast", [0, "o", "\x1b[?1049h\x1b[?25lone"], [1000, "o", "two"])
    async with agent_here() as window:
        playback = await window_with(window, path, file)
        await window.until_output(playback, "one")
        await window.type(playback, "unseen\x03")
        assert (await window.wait(playback))["exitCode"] == 130
        output = (await window.output(playback))["output"]
        # The window's tty converts LF to CR LF.
        assert output.endswith(LEAVE.decode() + "\r\r\n")
        assert "unseen" not in output
        await window.release(playback)


@pytest.mark.long
async def test_window_that_is_too_small_is_reported(path, tmp_path):
    file = cast(tmp_path / "a.cast", [0, "o", "one"], cols=100, rows=50)
    async with agent_here() as window:
        playback = await window_with(window, path, file, cols=120, rows=30)
        await window.wait(playback)
        output = (await window.output(playback))["output"]
        assert "the recording is 100 by 50, this window 120 by 30" in output
        await window.release(playback)


@pytest.mark.long
async def test_unreadable_lines_are_reported_at_the_end(path, tmp_path):
    file = cast(tmp_path / "a.cast", [0, "o", "one"], "no event", [0, "o", "two"], 5)
    expected = "2 lines left out: the first is line 3, which is no array of a time, a code and data"
    done = await run(path, "replay", file)
    assert done == (0, "onetwo", f"acpterm: {file}: {expected}\n")
    async with agent_here() as window:
        playback = await window_with(window, path, file, cols=200)
        assert (await window.wait(playback))["exitCode"] == 0
        output = (await window.output(playback))["output"]
        assert output.endswith(f"{LEAVE.decode()}\r\r\nacpterm: {file}: {expected}\r\n")
        await window.release(playback)


async def test_recording_without_readable_lines_is_an_error(path, tmp_path):
    file = cast(tmp_path / "a.cast", [0])
    expected = "1 line left out: it is line 2, which is no array of a time, a code and data"
    assert await run(path, "replay", file) == (1, "", f"acpterm: {file}: {expected}\n")
    assert await run(path, "replay", cast(tmp_path / "b.cast")) == (0, "", "")


@pytest.mark.costly
@pytest.mark.parametrize(
    ("words", "status", "expected"),
    [
        (["nothing"], 1, "there is no terminal 'nothing'"),
        (["./nothing"], 1, "./nothing: No such file or directory"),
        (["/"], 1, "/: Is a directory"),
        (["/dev/null"], 1, "/dev/null: the recording is empty"),
        (["nothing", "--speed", "0"], 2, "--speed"),
        (["nothing", "--idle-limit", "nan"], 2, "is no number"),
    ],
)
async def test_invalid_recording_is_an_error(path, words, status, expected):
    done = await run(path, "replay", *words)
    assert (done.status, done.out) == (status, "")
    assert expected in done.err


@pytest.mark.long
async def test_keys_control_the_playback(path, tmp_path):
    file = cast(tmp_path / "a.cast", [0, "o", "one\r\n"], [1000, "o", "two\r\n"], [2000, "o", "x"])
    async with agent_here() as window:
        playback = await window_with(window, path, file)
        await window.until_output(playback, "one")
        await window.type(playback, ".")
        await window.until_output(playback, "two")
        # Back to before the second line, which is played again.
        await window.type(playback, "\x1b[D.")
        with trio.fail_after(DEADLINE_S):
            while (output := (await window.output(playback))["output"]).count("two") < 2:
                await trio.sleep(0.005)
        assert output.count("one") == 2
        await window.type(playback, "q")
        assert (await window.wait(playback))["exitCode"] == 0
        await window.release(playback)
