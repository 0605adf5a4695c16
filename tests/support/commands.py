"""The user's commands as processes, which use the daemon at a socket."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from tests.support.polling import poll
from tests.support.processes import environment
from tests.support.starting import start


class Result(NamedTuple):
    """The exit status and the output of a command."""

    status: int
    out: str
    err: str


def command_environment(path: str, **more: str) -> dict[str, str]:
    """Return the environment of a command that uses the daemon at `path`."""
    directory = os.path.dirname(path)
    env = environment(
        ACPTERM_SOCKET=path,
        XDG_CONFIG_HOME=os.path.join(directory, "none"),
        XDG_STATE_HOME=os.path.join(directory, "state"),
        LC_ALL="C.UTF-8",
    )
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        env.pop(name, None)
    return env | more


async def run(path: str, *words: str, **env: str) -> Result:
    """Run `acpterm` to its end, without stdin."""
    return await run_with(list(words), env=command_environment(path, **env))


async def run_with(words: list[str], stdin: bytes = b"", **popen: Any) -> Result:
    """Run `acpterm` to its end, with `stdin`; `popen` is as for `subprocess.Popen`."""
    source = subprocess.PIPE if stdin else subprocess.DEVNULL
    pipes = {"stdin": source, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start(words, **pipes, **popen)
    try:
        out, err = await trio.to_thread.run_sync(
            process.communicate, stdin or None, abandon_on_cancel=True
        )
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(process.wait)
    assert b"Traceback" not in err, err
    return Result(process.returncode, out.decode(), err.decode())


class Running:
    """A running command, and its output so far."""

    def __init__(self, process: "subprocess.Popen[bytes]", directory: Path) -> None:
        self.process = process
        self._directory = directory

    @property
    def out(self) -> str:
        return (self._directory / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self._directory / "stderr").read_text()

    @property
    def lines(self) -> list[str]:
        """The complete lines of the command's stdout."""
        return [f"{line}\n" for line in self.out.split("\n")[:-1]]

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    async def wait(self) -> int:
        return int(await poll(self.process.poll))


@asynccontextmanager
async def running(tmp_path: Path, path: str, *words: str, **more: Any) -> AsyncIterator[Running]:
    """Run `acpterm WORDS` with the daemon at the socket `path`; kill it at the end of the block."""
    directory = tmp_path / f"command-{os.urandom(4).hex()}"
    directory.mkdir()
    with (directory / "stdout").open("wb") as out, (directory / "stderr").open("wb") as err:
        process = start(
            list(words),
            **{
                "env": command_environment(path),
                "stdin": subprocess.DEVNULL,
                "stdout": out,
                "stderr": err,
                **more,
            },
        )
    command = Running(process, directory)
    try:
        yield command
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(process.wait)
    assert "Traceback" not in command.err


def shim(directory: Path) -> str:
    """Create a directory with a command `acpterm`; return a PATH that begins with the directory."""
    directory.mkdir(exist_ok=True)
    script = directory / "acpterm"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m acpterm "$@"\n')
    script.chmod(0o755)
    return f"{directory}{os.pathsep}{os.environ['PATH']}"


def report_status(words: list[str]) -> list[str]:
    """Return a command that runs the command `words`, prints its exit status, and keeps running."""
    script = 'trap : INT QUIT; "$@"; echo "ended $?"; exec sleep 1000'
    return ["/bin/sh", "-c", script, "sh", *words]
