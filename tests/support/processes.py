"""Runs processes of `acpterm`, and inspects processes."""

import os
import signal
import subprocess
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from tests.support.depth import DEADLINE_S
from tests.support.polling import poll
from tests.support.starting import ACPTERM, start


class Process:
    """A process of `acpterm`, and its stderr in a file."""

    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self.process = process
        self.pid = process.pid
        self.log = log

    async def wait(self, timeout_s: float = DEADLINE_S) -> int:
        """Wait until the process exits; return its exit status."""
        return int(await poll(self.process.poll, timeout_s))

    def terminate(self) -> None:
        self.process.send_signal(signal.SIGTERM)

    def logged(self) -> str:
        return self.log.read_text()


def environment(**more: str) -> dict[str, str]:
    """Return this process's environment without settings of acpterm and CI, updated by `more`."""
    names = [name for name in os.environ if name != "CI" and not name.startswith("ACPTERM_")]
    env = {name: os.environ[name] for name in names}
    return env | more


@asynccontextmanager
async def process(
    directory: Path,
    *arguments: str,
    env: dict[str, str] | None = None,
    prefix: Sequence[str] = (),
    **popen: Any,
) -> AsyncIterator[Process]:
    """Run `acpterm` with arguments; kill it at the end of the block.

    `prefix` are words to put before the command, such as those that run it as another user.
    """
    log = directory / f"stderr-{os.urandom(4).hex()}"
    options = {
        "env": environment(XDG_CONFIG_HOME=str(directory / "none")) if env is None else env,
        "stdin": subprocess.DEVNULL,
        "stdout": subprocess.DEVNULL,
        **popen,
    }
    with log.open("wb") as stderr:
        if prefix:
            words = [*prefix, *ACPTERM, *arguments]
            started = subprocess.Popen(words, stderr=stderr, **options)
        else:
            started = start(list(arguments), stderr=stderr, **options)
    try:
        yield Process(started, log)
    finally:
        if started.poll() is None:
            started.kill()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(started.wait)


def alive(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return "State:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
