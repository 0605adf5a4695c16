"""Daemons and processes of a user of their own, for tests that run as root."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from tests.support.bounded import FIRST_UID, as_user
from tests.support.hosts import ACPTERM, environment
from tests.support.polling import poll

UID = FIRST_UID + os.getpid()


@contextmanager
def directory() -> Iterator[Path]:
    """Make a directory of that user's; pytest's own are in one that only root may enter."""
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("a user of its own takes root and setpriv")
    path = Path(tempfile.mkdtemp(prefix="acpterm-tests-"))
    try:
        os.chown(path, UID, UID)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def identity() -> Iterator[None]:
    """Connect as that user: a socket's peer sees the effective one."""
    os.seteuid(UID)
    try:
        yield
    finally:
        os.seteuid(0)


async def connect(path: str) -> trio.SocketStream:
    """Connect to a socket as that user."""
    with identity():
        return await trio.open_unix_socket(path)


def variables(path: Path, **more: str) -> dict[str, str]:
    """Make the environment of that user's commands."""
    here = {"HOME": str(path), "XDG_CONFIG_HOME": str(path), "XDG_RUNTIME_DIR": str(path)}
    return environment(**here, **more)


@asynccontextmanager
async def daemon_of_user(
    path: Path, before: list[str] | None = None, **more: str
) -> AsyncIterator[tuple[subprocess.Popen[bytes], str, Path]]:
    """Run a daemon of that user: its process, the agents' socket, and its log."""
    socket = str(path / "agent.sock")
    log = path / "log"
    with log.open("wb") as stderr:
        process = subprocess.Popen(
            [*(as_user(UID) if before is None else before), *ACPTERM, "serve", "--socket", socket],
            stderr=stderr,
            stdin=subprocess.DEVNULL,
            env=variables(path, **more),
        )
    try:
        await poll(lambda: (path / "user.sock").exists() or process.poll() is not None, 20)
        assert process.poll() is None, log.read_text()
        yield process, socket, log
    finally:
        process.terminate()
        try:
            process.wait(8)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def python_as_user(code: str, *arguments: str) -> str:
    """Run Python as that user: what it prints."""
    done = subprocess.run(
        [*as_user(UID), sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
