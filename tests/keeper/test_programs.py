"""The environment in which the keeper starts a program: terminal, limits, signals, errors."""

import os
import resource
import signal
from functools import partial

import pytest
import trio
import trio.testing

from acpterm.keeper.programs.spawn import ptyprocess_spawn
from tests.keeper.terminals import poll, program, run, spawn

WAYS = ["leader", "fork"]
_CORE = resource.getrlimit(resource.RLIMIT_CORE)
# The leader's code takes 16 limits.
_FOR_WAY = {"leader": (), "fork": ((resource.RLIMIT_CORE, *_CORE),) * 17}


@pytest.fixture(params=WAYS)
def way(request):
    """Return a function that runs a program and checks that it was started in this way."""

    async def run_that_way(keeper, *argv, rlimits=(), **options):
        limits = (*_FOR_WAY[request.param], *rlimits)
        ended = await run(keeper, *argv, rlimits=limits, **options)
        assert ended.way == request.param
        return ended

    return run_that_way


@pytest.mark.costly
async def test_program_has_a_controlling_terminal_of_its_own(keeper, way):
    ended = await way(
        keeper,
        "tty; exec 3<>/dev/tty && echo tty opened >&3; ps -o pid=,pgid=,sid=,tpgid=,tty= -p $$; :",
    )
    name, opened, process = ended.output.splitlines()
    assert opened == "tty opened"
    pid, pgid, sid, tpgid, tty = process.split()
    assert pid == pgid == tpgid != sid
    assert f"/dev/{tty}" == name


async def test_program_finds_the_window_size_when_it_starts(keeper, way):
    ended = await way(keeper, "stty", "size", size=(101, 37))
    assert ended.output == "37 101\n"


async def test_terminal_has_the_iutf8_mode(keeper, way):
    assert " iutf8" in (await way(keeper, "stty", "-a")).output


async def test_program_has_the_requested_directory_and_umask(keeper, way, tmp_path):
    ended = await way(keeper, "pwd; umask; :", cwd=str(tmp_path), umask=0o137)
    assert ended.output == f"{tmp_path}\n0137\n"


def umask_of(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(line for line in status if line.startswith("Umask"))


async def test_keeper_keeps_its_own_directory_and_umask(keeper, tmp_path):
    async def directory_and_umask():
        return umask_of(keeper.pid), (await run(keeper, "pwd", cwd=".")).output

    before = await directory_and_umask()
    await run(keeper, "true", cwd=str(tmp_path), umask=0o777)
    await run(keeper, "no-such-program", cwd=str(tmp_path), umask=0o777)
    assert await directory_and_umask() == before


async def test_program_has_only_the_requested_environment(keeper, way):
    ended = await way(keeper, "/usr/bin/env", env={"A": "b", "C": "ä"})
    assert sorted(ended.output.split()) == ["A=b", "C=ä"]


@pytest.mark.costly
@pytest.mark.parametrize("way", WAYS)
async def test_program_has_no_descriptor_of_the_keeper(keeper, way):
    other = await spawn(keeper, "sleep 60; :")
    terminal = await spawn(keeper, "sleep", "60", rlimits=_FOR_WAY[way])

    # The dynamic loader has files open for a moment after exec.
    await poll(lambda: sorted(os.listdir(f"/proc/{terminal.pid}/fd")) == ["0", "1", "2"])
    for each in (other, terminal):
        keeper.forget(each.name)
        each.close()


async def test_program_has_default_signals_and_none_blocked(keeper, way):
    ended = await way(keeper, "cat", "/proc/self/status")
    # The C library sets its two internal signals when they are used.
    own = 0b11 << 31 if ended.way == "fork" else 0
    masks = dict(line.split(":\t") for line in ended.output.splitlines() if "Sig" in line)
    assert {int(masks[name], 16) & ~own for name in ("SigBlk", "SigIgn", "SigCgt")} == {0}


async def test_program_has_the_requested_limits(keeper, way):
    limits = (
        (resource.RLIMIT_NOFILE, 77, 99),
        (resource.RLIMIT_CORE, 0, _CORE[1]),
        (resource.RLIMIT_AS, 1 << 30, -1),
        (resource.RLIMIT_STACK, 4 << 20, -1),
    )
    ended = await way(
        keeper, "ulimit -n; ulimit -Hn; ulimit -c; ulimit -v; ulimit -s; :", rlimits=limits
    )
    assert ended.output == "77\n99\n0\n1048576\n4096\n"


async def test_keeper_keeps_its_own_limits(keeper):
    def limits():
        with open(f"/proc/{keeper.pid}/limits") as file:
            return file.read()

    before = limits()
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    await run(keeper, "true", rlimits=((resource.RLIMIT_NOFILE, 50, hard),))
    assert limits() == before


@pytest.mark.parametrize(
    ("argv", "code", "message"),
    [
        (["no-such-program"], 127, "no-such-program: command not found"),
        (["/no/such/program"], 127, "/no/such/program: command not found"),
        (["/etc/passwd"], 126, "cannot be run: Permission denied"),
        (["/etc"], 126, "cannot be run: Permission denied"),
    ],
)
async def test_program_that_cannot_be_executed_prints_the_reason(keeper, argv, code, message):
    ended = await run(keeper, *argv)
    assert ended.code == code
    assert message in ended.output


async def test_missing_directory_is_reported_with_126(keeper):
    ended = await run(keeper, "true", cwd="/no/such/directory")
    assert ended.code == 126
    assert "/no/such/directory: cannot be the working directory" in ended.output


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        (b"#!/no/such/interpreter\n", "/no/such/interpreter"),
        (b"#! /bin/sh\r\n", "/bin/sh\\r"),
    ],
)
async def test_missing_interpreter_is_reported_with_126(keeper, tmp_path, line, shown):
    script = tmp_path / "script"
    script.write_bytes(line)
    script.chmod(0o755)
    ended = await run(keeper, str(script))
    assert ended.code == 126
    assert f"its interpreter {shown} is not there" in ended.output


async def test_script_without_interpreter_is_run_by_the_shell(keeper, tmp_path):
    script = tmp_path / "script"
    script.write_text("echo from $0\n")
    script.chmod(0o755)
    ended = await run(keeper, str(script))
    assert ended.output == f"from {script}\n"


async def test_program_is_found_in_the_path_of_its_environment(keeper, tmp_path):
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
    (tmp_path / "one" / "tool").write_text("#!/bin/sh\necho not this\n")
    tool = tmp_path / "two" / "tool"
    tool.write_text("#!/bin/sh\necho this\n")
    tool.chmod(0o755)
    path = f"{tmp_path}/one:{tmp_path}/two:{os.environ['PATH']}"
    ended = await run(keeper, "tool", env={"PATH": path})
    assert (ended.output, ended.way) == ("this\n", "leader")


async def test_relative_program_is_found_in_the_working_directory(keeper, tmp_path):
    tool = tmp_path / "tool"
    tool.write_text("#!/bin/sh\necho here\n")
    tool.chmod(0o755)
    ended = await run(keeper, "./tool", cwd=str(tmp_path))
    assert (ended.output, ended.way) == ("here\n", "leader")


async def test_fallback_is_used_when_the_program_is_not_found(keeper):
    ended = await run(keeper, "no-such-program", fallback_argv=["/bin/sh", "-c", "echo line"])
    assert ended.output == "line\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL, signal.SIGRTMIN + 3])
async def test_signal_that_ended_a_program_is_reported(keeper, way, number):
    assert (await way(keeper, f"kill -{int(number)} $$; :")).code == -number


@pytest.mark.long
async def test_exit_status_and_usage_are_reported(keeper):
    line = "import resource; x = bytearray(b'1') * (40 << 20); sum(range(3_000_000)); exit(9)"
    ended = await run(keeper, "python3", "-c", line)
    assert ended.code == 9
    assert 0.02 < ended.report.cpu < 20
    assert 40 << 20 < ended.report.max_rss < 200 << 20


@pytest.mark.costly
async def test_signal_right_after_the_response_reaches_the_foreground_program(keeper, way):
    for limits in _FOR_WAY.values():
        terminal = await spawn(keeper, "sleep 60; :", rlimits=limits)
        assert os.tcgetpgrp(terminal.master) == terminal.pid
        keeper.forget(terminal.name)
        terminal.close()


def output_of(master):
    output = b""
    try:
        while True:
            output += os.read(master, 4096)
    except OSError:
        os.close(master)
        return output.decode()


async def test_ptyprocess_spawn_sets_the_controlling_terminal(tmp_path):
    fields = program("tty; umask; pwd; stty size; :", cwd=str(tmp_path), umask=0o027)
    fields = fields._replace(argv=["/bin/sh", "-c", fields.argv[0]])
    pid, master, leader, way = ptyprocess_spawn(tuple(fields), 90, 30)
    output = output_of(master)
    await poll(lambda: os.waitpid(pid, os.WNOHANG)[0])
    assert (leader, way) == (None, "ptyprocess")
    assert output.split()[1:] == ["0027", str(tmp_path), "30", "90"]


async def test_put_is_sent_at_once_while_hundreds_of_programs_are_started(keeper):
    async with trio.open_nursery() as nursery:
        for _ in range(300):
            nursery.start_soon(partial(run, keeper, "true", record=b"r" * 8192))
        await trio.testing.wait_all_tasks_blocked()
        keeper.put("s/key", b"value")
        assert keeper.is_flushed
        nursery.cancel_scope.cancel()
