"""The user's commands, which use the daemon at a socket: in this process, or as processes."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, chdir, contextmanager
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple
from unittest.mock import patch

import trio

import acpterm
from acpterm.cli.main import group
from acpterm.pty import linux
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


async def run(path: str, *words: str, stdin: bytes = b"", **env: str) -> Result:
    """Run a command to its end: in a thread of this process, unless it handles signals.

    What takes effect when Python starts, such as the encoding of stdout, is that of the tests.
    """
    if words[:1] in (("mcp",), ("prompt",), ("proxy",), ("serve",), ("stdio",)):
        return await run_process(path, *words, **env)
    here = partial(run_here, list(words), command_environment(path, **env), stdin)
    return await trio.to_thread.run_sync(here, abandon_on_cancel=True)


_MAIN = str(Path(acpterm.__file__).with_name("__main__.py"))
_one_at_a_time = threading.Lock()


def run_here(words: list[str], env: dict[str, str], stdin: bytes = b"") -> Result:
    """Run a command to its end in this thread."""
    with _one_at_a_time, process_of(words, env, stdin) as output:
        status = run_group(words)
        return Result(status, *output())


def run_group(words: list[str]) -> int:
    """Run a command; return its exit status."""
    try:
        group(list(words), prog_name="acpterm")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 0
    return 0


@contextmanager
def process_of(
    words: list[str], env: dict[str, str], stdin: bytes = b"", cwd: str | Path = "."
) -> Iterator[Callable[[], tuple[str, str]]]:
    """Make this process look like that of a command for the duration of the block.

    Yield a function that returns stdout and stderr so far.
    """
    with (
        TemporaryFile() if stdin else open(os.devnull, "rb+") as source,
        TemporaryFile() as out,
        TemporaryFile() as err,
    ):

        def output() -> tuple[str, str]:
            sys.stdout.flush()
            sys.stderr.flush()
            out.seek(0)
            err.seek(0)
            return out.read().decode(), err.read().decode()

        if stdin:
            source.write(stdin)
            source.seek(0)
        with (
            chdir(cwd),
            patch.dict(os.environ, env, clear=True),
            patch.object(linux, "forbid_inspection"),
            patch.object(sys, "argv", [_MAIN, *words]),
            _standard_streams(source, out, err),
        ):
            yield output


def completions(path: str, *words: str, **env: str) -> list[str]:
    """Return the completions of the last word, as bash's function requests them.

    On a busy machine the daemon may not respond in time, and then there are none of its names.
    """
    more = {"COMP_WORDS": "\n".join(words), "COMP_CWORD": str(len(words) - 1)}
    env = command_environment(path, **more, _ACPTERM_COMPLETE="bash_complete", **env)
    done = run_here([], env)
    assert (done.status, done.err) == (0, "")
    return [line.partition(",")[2] for line in done.out.splitlines() if line]


@contextmanager
def _standard_streams(*files: IO[bytes]) -> Iterator[None]:
    """Replace stdin, stdout and stderr, both as descriptors and as Python's files."""
    names = ("stdin", "stdout", "stderr")
    saved = [os.dup(number) for number in range(3)]
    with patch.multiple(sys, **{name: getattr(sys, name) for name in names}):
        for number, (name, file) in enumerate(zip(names, files, strict=True)):
            os.dup2(file.fileno(), number)
            stream = os.fdopen(number, "w" if number else "r", closefd=False, encoding="utf-8")
            setattr(sys, name, stream)
        try:
            yield
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            for number, fd in enumerate(saved):
                os.dup2(fd, number)
                os.close(fd)


async def run_process(path: str, *words: str, **env: str) -> Result:
    """Run `acpterm` to its end as a process, without stdin."""
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
