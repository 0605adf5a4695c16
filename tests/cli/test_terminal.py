"""`acpterm terminal`: the words of the chat command, in a shell."""

import json
import os
import re

import pytest

from tests.support.commands import command_environment, run, running
from tests.support.daemon import daemon
from tests.support.polling import poll


@pytest.fixture
async def path(tmp_path):
    """A daemon of which no other test's terminal has the name `term-1`."""
    async with daemon(tmp_path) as (_, path):
        yield path


WAITS = "echo ready; read x; echo got $x; read x"


async def use(path, *words, **env):
    """Run `acpterm terminal`, which waits for output even if a busy machine delays the program."""
    return await run(path, "terminal", *words, ACPTERM_TOOL_SETTLE_INTERVAL="30", **env)


@pytest.mark.long
async def test_terminal_is_started_used_and_stopped(path, tmp_path):
    done = await use(path, "start", WAITS)
    assert done == (
        0,
        f"Terminal Session Started\nTerminal Id: term-1\nSent Command: {WAITS}\n\nOutput:\nready\n",
        "",
    )
    done = await use(path, "send", "term-1", "two", "words")
    assert done.out.startswith("Terminal Session: term-1\n\nOutput:\ntwo words\ngot two words")
    done = await run(path, "terminal", "list")
    assert re.fullmatch(
        r"Active Terminal Sessions:\n"
        r"ID           \| Command                        \| Position \| Running \| Uptime\n"
        r"-------------\|--------------------------------\|----------\|---------\|--------\n"
        r"term-1       \| echo ready; read x; echo got … \| \d+ +\| Yes     \| \d+s\n",
        done.out,
    )
    done = await run(path, "terminal", "output", "term-1")
    assert done.out.startswith("Terminal Session: term-1\nComplete Output:\nready\ntwo words\n")
    done = await run(path, "terminal", "stop", "term-1")
    assert done == (0, "Terminal session term-1 terminated.\n", "")
    assert await run(path, "terminal", "list") == (0, "No active terminal sessions.\n", "")
    done = await run(path, "terminal", "stop", "term-1")
    assert (done.status, done.out) == (1, "")
    assert done.err.startswith("acpterm: there is no terminal 'term-1'")


async def test_start_runs_a_program_with_its_arguments(path):
    done = await use(path, "start", "printf", "%s|", "a b", "$HOME", "-d")
    assert "Sent Command: printf '%s|' 'a b' '$HOME' -d\n" in done.out
    assert done.out.endswith("Output:\na b|$HOME|-d|\n[exited with 0]\n")


async def test_start_runs_in_the_current_directory(path):
    done = await use(path, "start", "pwd")
    assert f"Output:\n{os.getcwd()}\n" in done.out


async def test_start_runs_where_the_selected_provider_says(path, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text('provider = "podman"\nimage = ""\n')
    done = await use(path, "start", "true", ACPTERM_CONFIG=str(config))
    assert done.status == 1
    assert "podman" in done.err or "image" in done.err


async def test_send_presses_a_key(path):
    await use(path, "start", "trap 'echo caught; exit 4' INT; echo ready; read x")
    done = await use(path, "send", "term-1", "C-c")
    assert done.out.endswith("caught\n[exited with 4]\n")


@pytest.mark.long
async def test_send_types_words_that_look_like_options(path):
    await use(path, "start", WAITS)
    done = await use(path, "send", "term-1", "-y", "--all")
    assert "got -y --all" in done.out


async def test_interrupted_start_leaves_the_terminal(path, tmp_path):
    words = ["terminal", "start", f"touch {tmp_path}/ran; exec sleep 60"]
    # The command still waits for output when it is interrupted, even if this process was stalled.
    env = command_environment(path, ACPTERM_TOOL_SETTLE_INTERVAL="30")
    async with running(tmp_path, path, *words, env=env) as command:
        await poll((tmp_path / "ran").exists)
        command.interrupt()
        assert await command.wait() == 130
    listed = await run(path, "ls", "--json")
    assert [one["name"] for one in json.loads(listed.out)] == ["term-1"]


@pytest.mark.long
async def test_provider_words_are_those_of_acpterm_provider(path, tmp_path):
    config = tmp_path / "acpterm" / "config.toml"
    env = {"XDG_CONFIG_HOME": str(tmp_path)}
    done = await run(path, "terminal", "provider", "set", "landlock", **env)
    assert (done.status, config.read_text()) == (0, 'provider = "landlock"\n')
    # The running daemon keeps its own.
    assert (await run(path, "terminal", "provider", "get", **env)).out == "local\n"
    assert "* local" in (await run(path, "terminal", "provider", "list", **env)).out
    assert "acpterm provider set" in (await run(path, "terminal", "provider", "select", **env)).err


async def test_list_without_a_daemon_is_an_error(tmp_path):
    done = await run(str(tmp_path / "agent.sock"), "terminal", "list")
    assert done.status == 1
    assert "there are no terminals" in done.err
