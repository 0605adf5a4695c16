"""Programs in containers of a real podman: they run as on a terminal of the host."""

import os
import subprocess
from contextlib import asynccontextmanager

import pytest

from acpterm.providers.podman import ContainerProvider
from acpterm.providers.provider import Command
from acpterm.pty.program import Program
from acpterm.terminal.pool import TerminalSpec
from acpterm.terminal.status import EndedBy
from tests.support.containers import IMAGE
from tests.support.polling import poll
from tests.support.pools import running_pool

pytestmark = [
    pytest.mark.long,
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
]


@pytest.fixture
def provider(podman_env):
    return ContainerProvider("podman", IMAGE)


@pytest.fixture
def workspace(tmp_path):
    directory = tmp_path / "work space"
    directory.mkdir()
    return directory


def command(workspace, *argv, **more):
    values = {
        "argv": argv,
        "fallback_argv": None,
        "env": {**os.environ, "TERM": "xterm-256color"},
        "cwd": str(workspace),
        "workspace": str(workspace),
        "shell": "/bin/sh",
        **more,
    }
    return Command(**values)


@asynccontextmanager
async def running(provider, pool, command, **spec):
    """Start a command; release its terminal and clean up at the end of the block."""
    prepared = await provider.prepare(command)
    program = Program(prepared.argv, prepared.env, prepared.cwd, 0o22)
    terminal = await pool.create(program, TerminalSpec(**spec))
    try:
        yield terminal
    finally:
        pool.release(terminal, EndedBy.AGENT)
        await terminal.wait_closed()
        await provider.clean_up(prepared.token)
    assert prepared.token not in containers()


async def run(provider, command, **spec):
    """Run a command to its end; return the exit status, and the output."""
    async with running_pool() as pool, running(provider, pool, command, **spec) as terminal:
        status = await terminal.wait_exited()
        return status, terminal.text.text()


def containers():
    """Return the names of all containers."""
    listed = ["podman", "ps", "--all", "--format={{.Names}}"]
    return subprocess.run(listed, capture_output=True, text=True, check=True).stdout.split()


def shell(workspace, line, **more):
    return command(workspace, "/bin/sh", "-c", line, **more)


async def test_program_has_the_workspace_the_size_and_the_exit_status(provider, workspace):
    line = "pwd; stty size; tty; echo made >new; exit 3"
    status, text = await run(provider, shell(workspace, line), size=(33, 7))
    assert (status.code, status.signal) == (3, None)
    assert text == f"{workspace}\n7 33\n/dev/pts/0\n"
    assert (workspace / "new").read_text() == "made\n"
    assert (workspace / "new").stat().st_uid == os.geteuid()
