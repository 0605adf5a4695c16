"""Shell completion of commands, flags and terminals, which is fast and prints no errors."""

import re
import shutil
import socket
import subprocess
from contextlib import suppress

import pytest

from acpterm.commands.completion import short_ids
from tests.support.commands import command_environment, completions, run, shim
from tests.support.daemon import daemon, user_socket
from tests.support.depth import DEADLINE_S
from tests.support.polling import poll_blocking
from tests.support.starting import ACPTERM
from tests.support.tmux import needs_tmux, tmux_server
from tests.support.user import user_at


@pytest.fixture
async def path(tmp_path):
    async with daemon(tmp_path) as (_, path):
        async with user_at(user_socket(path)) as user:
            for name in ("build", "bench", "odd name", "it's*"):
                params = {"command": "sleep 1000 # \\e[m a:b,c", "name": name}
                await user.request("terminal/create", params)
        yield path


def terminals(path: str, *words: str) -> list[str]:
    """Request completions until there are some; return them."""
    return poll_blocking(lambda: completions(path, *words))


@pytest.mark.long
async def test_terminal_is_completed_to_its_name_or_its_id(agent, path):
    one = await agent.create("sleep 1000")
    short = one.removeprefix("term_")
    found = terminals(path, "acpterm", "kill", "")
    assert found[:2] == ["build", "bench"]
    # Terminals without a name, or whose name needs quoting, are completed by id.
    assert all(re.fullmatch("[0-9a-f]{8}", word) for word in found[2:])
    assert found[4] == short[:8]
    # Ids are random, so some may begin with "b".
    ids = [word for word in found[2:] if word.startswith("b")]
    assert terminals(path, "acpterm", "kill", "b") == ["build", "bench", *ids]
    assert terminals(path, "acpterm", "kill", "bu") == ["build"]
    assert "build" not in terminals(path, "acpterm", "kill", "build", "")
    ids = [word for word in found[2:] if word.startswith(short[:3])]
    assert terminals(path, "acpterm", "rm", short[:3]) == ids
    assert terminals(path, "acpterm", "promote", one[:12]) == [one]
    assert terminals(path, "acpterm", "promote", short[:11]) == [short]
    assert terminals(path, "acpterm", "kill", "@") == ["@last"]
    other = "--socket=" + path
    assert terminals("/nowhere/agent.sock", "acpterm", "kill", other, "bu") == ["build"]


NAMES = ("build", "over", "served")


async def test_commands_for_running_programs_are_offered_no_others(path):
    async with user_at(user_socket(path)) as user:
        for name, line in (("over", "exit 0"), ("served", "sleep 1000 & exit 0")):
            info = await user.request("terminal/create", {"command": line, "name": name})
            await user.terminal_request("wait", info["terminalId"])
    for command in ("attach", "kill", "send", "resize"):
        assert set(NAMES) & set(terminals(path, "acpterm", command, "")) == {"build", "served"}
    assert set(NAMES) <= set(terminals(path, "acpterm", "logs", ""))


async def test_commands_flags_and_choices_are_completed(tmp_path):
    path = str(tmp_path / "agent.sock")
    assert completions(path, "acpterm", "pro") == ["promote", "provider", "proxy", "prompt"]
    assert completions(path, "acpterm", "ls", "--wat") == ["--watch"]
    assert completions(path, "acpterm", "prompt", "--allow", "r") == ["reads"]
    assert completions(path, "acpterm", "completion", "z") == ["zsh"]


async def test_completion_is_empty_and_starts_no_daemon_when_none_runs(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    assert completions(path, "acpterm", "kill", "") == []
    assert not (tmp_path / "run").exists()
    assert completions(path, "acpterm", "kill", "", ACPTERM_ROWS="wrong") == []


@pytest.mark.costly
@pytest.mark.parametrize("response", [None, b"invalid\n", b"[]\n1\n", b'{"id":1,"result":{}}\n'])
async def test_completion_gives_up_when_the_daemon_sends_nothing_or_invalid_data(
    tmp_path, response
):
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(tmp_path / "user.sock"))
        listener.listen()
        process = subprocess.Popen(
            ACPTERM,
            env=command_environment(
                str(tmp_path / "agent.sock"),
                COMP_WORDS="acpterm\nkill\n",
                COMP_CWORD="2",
                _ACPTERM_COMPLETE="bash_complete",
            ),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        stream, _ = listener.accept()
        if response is not None:
            # If this process was stalled, completion has given up already.
            with suppress(BrokenPipeError):
                stream.sendall(response)
        out, _ = process.communicate(timeout=DEADLINE_S)
        stream.close()
    assert (process.returncode, out) == (0, b"\n")


def test_short_ids_have_the_shortest_unique_length():
    ids = ["term_0123456789", "term_0123456abc", "term_f000000000", "term_0123456780"]
    assert short_ids(ids) == {
        "term_0123456789": "0123456789",
        "term_0123456abc": "0123456a",
        "term_f000000000": "f0000000",
        "term_0123456780": "0123456780",
    }
    assert short_ids([]) == {}


async def test_completion_refuses_an_unknown_shell(tmp_path):
    status, _, err = await run(str(tmp_path / "agent.sock"), "completion", "csh")
    assert status == 2
    assert "'csh' is not one of 'bash', 'zsh', 'fish'" in err


SHELLS = {
    "bash": (
        ["bash", "--norc", "--noprofile", "-i"],
        ['PS1="> "', 'eval "$(acpterm completion bash)"'],
    ),
    "zsh": (
        ["zsh", "-f", "-i"],
        ["PS1='> '", "autoload -U compinit; compinit -u -D", 'eval "$(acpterm completion zsh)"'],
    ),
    "fish": (
        ["fish", "--no-config"],
        ["function fish_prompt; echo '> '; end", "acpterm completion fish | source"],
    ),
}


def press(pane, keys, *shown):
    """Press keys until the pane shows all words of `shown`, at most three times.

    On a busy machine the daemon may not respond in time, and then a Tab shows nothing.
    """
    for _ in range(3):
        pane.keys(*keys)
        with suppress(TimeoutError):
            poll_blocking(lambda: all(word in pane.text for word in shown), 5, 0.025)
            return
    pytest.fail(f"no {shown!r} in:\n{pane.text}")


@needs_tmux
@pytest.mark.parametrize("shell", SHELLS)
@pytest.mark.long
async def test_completion_works_in_each_shell(tmp_path, path, shell):
    command, lines = SHELLS[shell]
    if shutil.which(shell) is None:
        pytest.skip(f"there is no {shell}")
    env = command_environment(path, HOME=str(tmp_path))
    # tmux sets a PATH and a TERM of its own for the programs that it starts.
    command = ["env", f"PATH={shim(tmp_path / 'bin')}", *command]
    with tmux_server(tmp_path / "tmux") as tmux:
        pane = tmux.pane(command, env=env, size=(100, 30), cwd=tmp_path)
        pane.until(lambda: pane.text)
        for line in lines:
            pane.line(line)
        pane.line("clear; echo rea''dy")
        pane.until("ready")
        pane.type("acpterm kill bu")
        press(pane, ["Tab"], "acpterm kill build")
        pane.keys("C-u")
        pane.type("acpterm stat")
        pane.keys("Tab")
        pane.until("acpterm status")
        pane.keys("C-u")
        pane.type("acpterm kill b")
        press(pane, ["Tab", "Tab"], "build", "bench")
        if shell != "bash":
            assert r"sleep 1000 # \e[m a:b" in pane.text
        assert "Traceback" not in pane.text
