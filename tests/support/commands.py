"""The person's commands for tests: each a program of its own, that asks a daemon by its socket."""

import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import trio

from tests.support.hosts import environment
from tests.support.polling import poll
from tests.support.starting import start


class Done(NamedTuple):
    """What became of a command."""

    status: int
    out: str
    err: str


def surroundings(path: str, **more: str) -> dict[str, str]:
    """Make the environment of a command that asks the daemon at `path`."""
    folder = os.path.dirname(path)
    env = environment(
        ACPTERM_SOCKET=path,
        XDG_CONFIG_HOME=os.path.join(folder, "none"),
        XDG_STATE_HOME=os.path.join(folder, "state"),
        LC_ALL="C.UTF-8",
    )
    for name in ("NO_COLOR", "COLUMNS", "LINES"):
        env.pop(name, None)
    return env | more


async def run(path: str, *words: str, **env: str) -> Done:
    """Run `acpterm` to its end, with nothing on stdin."""
    return await ended(list(words), env=surroundings(path, **env))


async def ended(words: list[str], stdin: bytes = b"", **how: Any) -> Done:
    """Run `acpterm` to its end, with `stdin`."""
    source = subprocess.PIPE if stdin else subprocess.DEVNULL
    pipes = {"stdin": source, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    process = start(words, **pipes, **how)
    said = stdin or None
    try:
        out, err = await trio.to_thread.run_sync(process.communicate, said, abandon_on_cancel=True)
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(process.wait)
    assert b"Traceback" not in err, err
    return Done(process.returncode, out.decode(), err.decode())


class Running:
    """A command that runs, and what it has printed by now."""

    def __init__(self, process: "subprocess.Popen[bytes]", folder: Path) -> None:
        self.process = process
        self._folder = folder

    @property
    def out(self) -> str:
        return (self._folder / "stdout").read_text()

    @property
    def err(self) -> str:
        return (self._folder / "stderr").read_text()

    @property
    def lines(self) -> list[str]:
        """Its lines that are whole."""
        return [f"{line}\n" for line in self.out.split("\n")[:-1]]

    async def until(self, look: Any) -> Any:
        return await poll(look)

    def interrupt(self) -> None:
        self.process.send_signal(signal.SIGINT)

    async def wait(self) -> int:
        return int(await poll(self.process.poll))


@asynccontextmanager
async def running(tmp_path: Path, path: str, *words: str, **more: Any) -> AsyncIterator[Running]:
    """Run `acpterm` for as long as the block lasts."""
    folder = tmp_path / f"command-{os.urandom(4).hex()}"
    folder.mkdir()
    with (folder / "stdout").open("wb") as out, (folder / "stderr").open("wb") as err:
        process = start(
            list(words),
            **{
                "env": surroundings(path),
                "stdin": subprocess.DEVNULL,
                "stdout": out,
                "stderr": err,
                **more,
            },
        )
    found = Running(process, folder)
    try:
        yield found
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await trio.to_thread.run_sync(process.wait)
    assert "Traceback" not in found.err


def shim(folder: Path) -> str:
    """Make a folder with a command `acpterm` in it: a PATH that begins with it."""
    folder.mkdir(exist_ok=True)
    script = folder / "acpterm"
    script.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m acpterm "$@"\n')
    script.chmod(0o755)
    return f"{folder}{os.pathsep}{os.environ['PATH']}"


def then_said(words: list[str]) -> list[str]:
    """Make a command line that runs another one, says its exit status, and stays."""
    return ["/bin/sh", "-c", 'trap : INT; "$@"; echo "ended $?"; exec sleep 1000', "sh", *words]
