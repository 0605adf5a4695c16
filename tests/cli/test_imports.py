"""Commands with a single request or stream import no slow module."""

import os
import subprocess
import sys

import pytest
import trio

from tests.support.commands import command_environment

SLOW = ("asyncio", "psutil", "rich", "structlog", "trio")
CODE = f"""
import atexit, sys
def report():
    sys.stderr.write(" ".join(["imported:"] + [name for name in {SLOW} if sys.modules.get(name)]))
atexit.register(report)
from acpterm.cli import main
main()
"""


def command(path, *words, **env):
    return subprocess.run(
        [sys.executable, "-c", CODE, *words],
        env=command_environment(path, **env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


COMMANDS = [
    ["ls"],
    ["ls", "--json"],
    ["logs", "web"],
    ["logs", "-f", "--timestamps", "over"],
    ["logs", "--raw", "web"],
    ["send", "web", "--enter"],
    ["wait", "over"],
    ["wait", "--for", "ready", "web"],
    ["inspect", "web"],
    ["rename", "web", "web"],
    ["resize", "web", "80x24"],
    ["promote", "web"],
    ["screen", "web"],
    ["export", "--format", "text", "web"],
    ["status"],
    ["run", "-d", "--name", "more", "--", "sleep", "60"],
    ["terminal", "list"],
    ["terminal", "start", "true"],
    ["terminal", "output", "term-1"],
    ["terminal", "stop", "term-1"],
    ["kill", "over"],
    ["rm", "over"],
    ["shutdown"],
]


@pytest.mark.long
def test_short_command_imports_no_slow_module(tmp_path):
    path = str(tmp_path / "run" / "agent.sock")
    # This command starts the daemon, too.
    done = command(path, "run", "-d", "--name", "web", "--", "sh", "-c", "echo ready; exec cat")
    try:
        assert (done.returncode, done.stderr) == (0, "imported:")
        command(path, "run", "-d", "--name", "over", "--", "true")
        for words in COMMANDS:
            done = command(path, *words)
            assert (words, done.returncode, done.stderr) == (words, 0, "imported:")
    finally:
        command(path, "shutdown")


@pytest.mark.long
async def test_completion_imports_no_slow_module(path):
    words = {
        "_ACPTERM_COMPLETE": "bash_complete",
        "COMP_WORDS": "acpterm logs w",
        "COMP_CWORD": "2",
    }
    await trio.to_thread.run_sync(command, path, "run", "-d", "--name", "web", "--", "sleep", "60")
    for _ in range(3):
        done = await trio.to_thread.run_sync(lambda: command(path, **words))
        assert done.stderr == "imported:"
        # On a busy machine the daemon may not respond in time, and then there is nothing.
        if "web" in done.stdout:
            break
    assert "web" in done.stdout


def test_failing_command_imports_no_slow_module(tmp_path):
    os.mkdir(tmp_path / "run", 0o700)
    done = command(str(tmp_path / "run" / "agent.sock"), "logs", "web")
    assert done.returncode == 1
    assert done.stderr.endswith("imported:")
