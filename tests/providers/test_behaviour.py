"""Programs behave alike on a terminal, whichever provider runs them, here or elsewhere."""

import os
import signal
import sys

import pytest
import trio

from acpterm.terminal.status import EndedBy
from tests.support.containers import JOB, command, shell
from tests.support.depth import DEADLINE_S
from tests.support.places import pids, release, run, start
from tests.support.polling import poll
from tests.support.pools import running_pool
from tests.support.processes import alive

PRINT_ARGV = (
    "import os, sys; os.write(1, b'\\0'.join(map(os.fsencode, sys.argv[1:])).hex().encode())"
)
NASTY = bytes(range(1, 256)).decode("utf-8", "surrogateescape")


async def ready(terminal, word="ready"):
    await poll(lambda: word in terminal.text.text())


async def test_program_has_its_directory_its_size_and_its_exit_status(anywhere, workspace):
    line = "pwd; stty size; test -t 0 && test -t 1 && test -t 2; echo $?; exit 3"
    status, text = await run(anywhere, shell(workspace, line), size=(33, 7))
    assert (status.code, status.signal, status.ended_by) == (3, None, EndedBy.EXITED)
    assert text == f"{workspace}\n7 33\n0\n"


@pytest.mark.parametrize("code", [0, 1, 126, 127, 128, 130, 137, 255])
async def test_exit_code_is_the_programs(anywhere, workspace, code):
    status, _ = await run(anywhere, shell(workspace, f"exit {code}"))
    assert (status.code, status.signal, status.ended_by) == (code, None, EndedBy.EXITED)


@pytest.mark.parametrize("name", ["HUP", "INT", "KILL", "PIPE", "SEGV", "TERM", "USR1"])
async def test_death_by_signal_is_the_programs(anywhere, workspace, name):
    status, _ = await run(anywhere, shell(workspace, f"kill -{name} $$; sleep 10"))
    assert (status.code, status.signal) == (None, f"SIG{name}")
    assert status.ended_by == EndedBy.EXITED


async def test_arguments_arrive_unchanged(anywhere, workspace):
    words = ["", "a b", "'", '"', "\\", "\\0101", "$HOME", "*", "-x", "!x", "ü\n\\\n", NASTY, "\n"]
    _, text = await run(anywhere, command(workspace, sys.executable, "-c", PRINT_ARGV, *words))
    assert bytes.fromhex(text).split(b"\0") == [os.fsencode(word) for word in words]


async def test_long_arguments_arrive(anywhere, workspace):
    words = ["x" * 120_000, "y" * 120_000]
    line = 'echo "${#1} ${#2}"'
    _, text = await run(anywhere, command(workspace, "/bin/sh", "-c", line, "sh", *words))
    assert text == "120000 120000\n"


async def test_environment_arrives_unchanged(anywhere, workspace):
    requested = {
        "MINE": "a=b\nc'd\"\\ $HOME",
        "NASTY": NASTY,
        "EMPTY": "",
        "WITH.DOT": "dot",
        "IFS": "x",
        "d": "1",
        "PPID": "7",
        "BASH_ENV": "/nowhere",
    }
    env = {**os.environ, **requested}
    argv = ["cp", "/proc/self/environ", "env"]
    await run(anywhere, command(workspace, *argv, env=env, requested=requested))
    entries = (workspace / "env").read_bytes().split(b"\0")
    found = dict(entry.split(b"=", 1) for entry in entries if entry)
    expected = {os.fsencode(name): os.fsencode(value) for name, value in requested.items()}
    assert {name: found.get(name) for name in expected} == expected


@pytest.mark.parametrize("name", ["sp ace", "q'uo\"te", "$x", "ünï", "new\nline", "back\\slash"])
async def test_program_runs_in_a_directory_of_any_name(anywhere, workspace, name):
    (workspace / name).mkdir()
    await run(anywhere, shell(workspace / name, "echo made >there"))
    assert (workspace / name / "there").read_text() == "made\n"


async def test_program_that_does_not_exist_is_reported_as_by_a_shell(anywhere, workspace):
    status, text = await run(anywhere, command(workspace, "no-such-program", "x"))
    assert status.code == 127
    assert text == "acpterm: no-such-program: command not found\n"


async def test_file_that_cannot_be_executed_is_reported_as_by_a_shell(anywhere, workspace):
    (workspace / "data").write_text("text")
    status, text = await run(anywhere, command(workspace, f"{workspace}/data"))
    assert status.code == 126
    assert "cannot be run: Permission denied" in text


async def test_directory_that_does_not_exist_is_reported(anywhere, workspace):
    status, text = await run(anywhere, shell(workspace / "missing", "echo ran"))
    assert status.code == 126
    assert f"{workspace}/missing: cannot be the working directory" in text


async def test_fallback_runs_only_if_the_program_does_not_exist(anywhere, workspace):
    fallback = ["/bin/sh", "-c", "echo fallback"]
    _, text = await run(anywhere, command(workspace, "echo one", fallback_argv=fallback))
    assert text == "fallback\n"
    _, text = await run(anywhere, command(workspace, "echo", "one", fallback_argv=fallback))
    assert text == "one\n"


async def test_shell_that_is_missing_is_replaced(anywhere, workspace):
    if anywhere.name == "local":
        return  # the shell of the settings is here
    line = 'echo "${BASH_VERSION:+bash}"; cat <(echo a)'
    _, text = await run(anywhere, command(workspace, "/no/bash", "-c", line, shell="/no/bash"))
    assert text == "bash\na\n"
    _, text = await run(anywhere, command(workspace, "/no/ksh", "-c", "echo $0", shell="/no/ksh"))
    assert text == "/bin/sh\n"


async def test_all_output_arrives(anywhere, workspace):
    status, text = await run(anywhere, shell(workspace, "seq 100000; printf last"), limit=2_000_000)
    assert status.code == 0
    assert text == "".join(f"{number}\n" for number in range(1, 100_001)) + "last"


async def test_input_that_is_typed_at_once_arrives_once(anywhere, workspace):
    async with running_pool() as pool:
        line = 'read -r line; echo "got $line"; read -r line; echo "got $line"'
        started = await start(anywhere, pool, shell(workspace, line))
        started.terminal.keyboard.type(b"one\r")
        started.terminal.keyboard.type(b"two\r")
        status = await started.terminal.wait_exited()
        lines = started.terminal.text.text().split("\n")
        assert sorted(lines) == ["", "got one", "got two", "one", "two"]
        assert status.code == 0
        await release(anywhere, pool, started)


async def test_program_has_the_modes_of_a_terminal(anywhere, workspace):
    _, text = await run(anywhere, shell(workspace, "stty -a"))
    words = text.replace(";", " ").split()
    assert {"icanon", "isig", "echo", "icrnl", "opost", "onlcr", "iexten", "cs8"} <= set(words)


async def test_ctrl_c_and_end_of_file_reach_the_program(anywhere, workspace):
    async with running_pool() as pool:
        line = "trap 'echo interrupted' INT; echo ready; cat; echo $?; cat; exit 5"
        started = await start(anywhere, pool, shell(workspace, line))
        terminal = started.terminal
        await ready(terminal)
        terminal.keyboard.type(b"x\r")
        await poll(lambda: terminal.text.text().count("x\n") == 2)
        terminal.keyboard.type(b"\x03")
        # The terminal echoes ^C before, in or after the lines.
        await poll(lambda: "interrupted\n130\n" in terminal.text.text().replace("^C", ""))
        terminal.keyboard.type(b"\x04")
        status = await terminal.wait_exited()
        assert status.code == 5
        await release(anywhere, pool, started)


async def test_program_follows_the_size_of_the_terminal(anywhere, workspace):
    line = "trap 'stty size' WINCH; echo ready; while :; do sleep 0.02; done"
    async with running_pool() as pool:
        started = await start(anywhere, pool, shell(workspace, line))
        await ready(started.terminal)
        started.terminal.resize(71, 19)
        await ready(started.terminal, "19 71\n")
        await release(anywhere, pool, started)


async def test_size_that_is_set_at_once_is_followed(anywhere, workspace):
    line = "until [ \"$(stty size)\" = '19 71' ]; do sleep 0.02; done; echo ready; exit 6"
    async with running_pool() as pool:
        started = await start(anywhere, pool, shell(workspace, line))
        started.terminal.resize(71, 19)
        with trio.fail_after(DEADLINE_S):
            assert (await started.terminal.wait_exited()).code == 6
        await release(anywhere, pool, started)


async def test_shell_is_interactive_with_job_control(anywhere, workspace):
    (workspace / "job").write_text(JOB)
    async with running_pool() as pool:
        started = await start(anywhere, pool, command(workspace, "bash", "--norc", "-i"))
        terminal = started.terminal
        await poll(lambda: terminal.text.text().endswith(("$ ", "# ")))
        terminal.keyboard.type(b"PS1='> '\r")
        await poll(lambda: terminal.text.text().endswith("\n> "))
        terminal.keyboard.type(b"sh job\r")
        await ready(terminal, "begun\n")
        terminal.keyboard.type(b"\x1a")
        await ready(terminal, "Stopped")
        terminal.keyboard.type(b"fg\r")
        await ready(terminal, "continued\n")
        terminal.keyboard.type(b"\x03")
        await poll(lambda: terminal.text.text().endswith("> "))
        terminal.keyboard.type(b"exit 4\r")
        assert (await terminal.wait_exited()).code == 4
        assert "no job control" not in terminal.text.text()
        await release(anywhere, pool, started)


async def test_signal_reaches_the_foreground(anywhere, workspace):
    async with running_pool() as pool:
        line = "trap 'echo caught' USR1; echo ready; while :; do sleep 0.02; done"
        started = await start(anywhere, pool, shell(workspace, line))
        terminal = started.terminal
        await ready(terminal)
        if terminal.remote is None:
            assert terminal.signal(signal.SIGUSR1)
        else:
            assert await terminal.remote.signal(signal.SIGUSR1)
        await ready(terminal, "caught")
        await release(anywhere, pool, started)


async def test_killed_program_may_clean_up_before_it_ends(anywhere, workspace):
    trap = "trap 'sleep 0.2; echo ended >file; echo farewell; exit 7' TERM"
    line = f"{trap}; echo ready; while :; do sleep 0.02; done"
    async with running_pool(grace=20.0) as pool:
        started = await start(anywhere, pool, shell(workspace, line))
        await ready(started.terminal)
        started.terminal.kill(EndedBy.AGENT)
        status = await started.terminal.wait_exited()
        assert (status.code, status.ended_by) == (7, EndedBy.AGENT)
        assert (workspace / "file").read_text() == "ended\n"
        assert started.terminal.text.text().endswith("farewell\n")
        await release(anywhere, pool, started)


async def test_stubborn_program_is_killed_with_all_its_descendants(anywhere, workspace):
    line = (
        "trap '' TERM HUP; echo $$ >>pids; sleep 1000 & echo $! >>pids;"
        "setsid sh -c 'echo $$ >>pids; trap \"\" TERM HUP; while :; do sleep 1; done' &"
        "while [ $(wc -l <pids) -lt 3 ]; do sleep 0.02; done; echo ready; while :; do sleep 1; done"
    )
    async with running_pool(grace=0.3) as pool:
        started = await start(anywhere, pool, shell(workspace, line))
        await ready(started.terminal)
        started.terminal.kill(EndedBy.USER)
        status = await started.terminal.wait_exited()
        assert (status.signal, status.ended_by) == ("SIGKILL", EndedBy.USER)
        await release(anywhere, pool, started)
        assert len(pids(workspace / "pids")) == 3
        await poll(lambda: not any(map(alive, pids(workspace / "pids"))))


async def test_background_processes_end_with_the_release(anywhere, workspace):
    line = "setsid sleep 1000 & echo $! >pids; sleep 0.1; touch done; exit 3"
    async with running_pool() as pool:
        started = await start(anywhere, pool, shell(workspace, line))
        if anywhere.name.startswith("slurm:"):
            # Slurm waits until nothing has the terminal open any more.
            await poll((workspace / "done").exists)
            assert started.terminal.exit is None
        else:
            assert (await started.terminal.wait_exited()).code == 3
        assert alive(pids(workspace / "pids")[0])
        await release(anywhere, pool, started)
        assert started.terminal.exit.code == 3
        await poll(lambda: not alive(pids(workspace / "pids")[0]))


async def test_program_that_is_killed_at_once_does_not_run_on(anywhere, workspace):
    async with running_pool() as pool:
        started = await start(anywhere, pool, shell(workspace, "echo $$ >pids; sleep 1000"))
        started.terminal.kill(EndedBy.AGENT)
        with trio.fail_after(DEADLINE_S):
            assert (await started.terminal.wait_exited()).ended_by in (
                EndedBy.AGENT,
                EndedBy.LOST,
            )
        await release(anywhere, pool, started)
        await trio.sleep(0.3)
        if (workspace / "pids").exists():
            await poll(lambda: not any(map(alive, pids(workspace / "pids"))))
