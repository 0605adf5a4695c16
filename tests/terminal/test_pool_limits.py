"""Limits of a terminal's programs that need no control group, and those that do where none exist.

`tests/guest` has the limits of control groups.
"""

import os
import resource
import signal
import sys

import pytest
import structlog.testing
import trio

from acpterm.pty.limits import Cause, LimitError
from acpterm.pty.program import Program
from acpterm.terminal.status import EndedBy
from tests.support.depth import DEADLINE_S
from tests.support.pools import running_pool

KIB = 1024
GROUP_LIMITS = [("memory", 1 << 20), ("cpu", 0.5), ("processes", 8), ("disk_io", 1 << 20)]


def program(*argv, **more):
    return Program(list(argv), **{"env": os.environ, "cwd": "/", "umask": 0o22, **more})


def shell(line, **more):
    return program("/bin/sh", "-c", line, **more)


async def run(pool, program, **limits):
    terminal = await pool.create(program, limits=limits)
    with trio.fail_after(DEADLINE_S):
        return await terminal.wait_exited(), terminal.text.text()


async def test_open_files_are_limited_and_the_limit_cannot_be_raised():
    count = "import os\ntry:\n  while True: os.dup(0)\nexcept OSError: print(os.dup2(0, 19))"
    line = f'ulimit -Sn; ulimit -Hn; "{sys.executable}" -I -S -c "$1"'
    async with running_pool() as pool:
        status, output = await run(pool, program("/bin/sh", "-c", line, "sh", count), open_files=20)
        assert (status.code, output) == (0, "20\n20\n19\n")


async def test_limit_does_not_raise_a_lower_limit_that_the_program_has():
    rlimits = [(resource.RLIMIT_NOFILE, 16, 24)]
    async with running_pool() as pool:
        _, output = await run(pool, shell("ulimit -Sn; ulimit -Hn", rlimits=rlimits), open_files=20)
        assert output == "16\n20\n"
        _, output = await run(pool, shell("ulimit -Sn; ulimit -Hn", rlimits=rlimits), open_files=64)
        assert output == "16\n24\n"


@pytest.mark.parametrize("way", ["exec", ""])
async def test_program_is_ended_by_the_limit_of_file_size(tmp_path, way):
    line = f"{way} dd if=/dev/zero of=file bs=1024 count=64 2>/dev/null"
    async with running_pool() as pool:
        status, output = await run(pool, shell(line, cwd=str(tmp_path)), file_size=16 * KIB)
        expected = (None, "SIGXFSZ") if way else (128 + signal.SIGXFSZ, None)
        assert (status.code, status.signal) == expected, output
        assert status.ended_by is EndedBy.LIMIT
        assert status.cause == Cause("file_size", 16 * KIB)
        assert (tmp_path / "file").stat().st_size == 16 * KIB
        status, _ = await run(pool, shell("kill -XFSZ $$"), open_files=64)
        assert (status.signal, status.ended_by) == ("SIGXFSZ", EndedBy.EXITED)


async def test_kill_is_reported_as_the_cause_before_a_limit(tmp_path):
    async with running_pool(grace=30.0) as pool:
        line = "trap 'exec dd if=/dev/zero of=file bs=1024 count=64 2>/dev/null' TERM; echo; read x"
        terminal = await pool.create(shell(line, cwd=str(tmp_path)), limits={"file_size": 16 * KIB})
        with trio.fail_after(DEADLINE_S):
            while not terminal.text.text():
                await terminal.wait_changed()
            terminal.kill(EndedBy.AGENT)
            status = await terminal.wait_exited()
        assert (status.signal, status.ended_by, status.cause) == ("SIGXFSZ", EndedBy.AGENT, None)


@pytest.mark.parametrize(("name", "value"), GROUP_LIMITS)
async def test_limit_that_needs_a_control_group_is_refused_without_one(name, value):
    async with running_pool(tracking="subreaper") as pool:
        with pytest.raises(LimitError) as raised:
            await run(pool, shell("exit 0"), **{name: value})
        assert (raised.value.limit, raised.value.value) == (name, value)
        text = f"the limit {name} = {value} cannot be enforced here: it needs a control group"
        assert str(raised.value).startswith(text)
        assert pool.terminals == {}


async def test_limit_that_cannot_be_enforced_is_logged_and_reported_if_it_need_not_be():
    async with running_pool(tracking="subreaper") as pool:
        with structlog.testing.capture_logs() as logs:
            terminal = await pool.create(
                shell("ulimit -n"),
                limits={**dict(GROUP_LIMITS), "open_files": 64},
                strict=False,
            )
        await terminal.wait_exited()
        assert terminal.text.text() == "64\n"
        names = [name for name, _ in GROUP_LIMITS]
        assert [error.limit for error in terminal.enforcement.unenforced] == names
        assert terminal.enforcement.limits == {"open_files": 64}
        warnings = [log for log in logs if log["event"] == "limit not enforced"]
        assert [log["limit"] for log in warnings] == names
        assert {(log["log_level"], log["terminal"]) for log in warnings} == {
            ("warning", terminal.id)
        }
