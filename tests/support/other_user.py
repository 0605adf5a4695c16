"""Runs daemons and processes as another user, here "the other user", for tests that run as root."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import AbstractAsyncContextManager, contextmanager
from pathlib import Path

import pytest
import trio

from tests.support.bounded import FIRST_UID, as_user
from tests.support.daemon import Daemon, daemon, listens
from tests.support.processes import environment

UID = FIRST_UID + os.getpid()


@contextmanager
def directory() -> Iterator[Path]:
    """Create a directory that the other user owns.

    pytest's own directories cannot be used, since only root may enter their parent.
    """
    if os.geteuid() != 0 or shutil.which("setpriv") is None:
        pytest.skip("another user requires root and setpriv")
    path = Path(tempfile.mkdtemp(prefix="acpterm-tests-"))
    try:
        os.chown(path, UID, UID)
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


@contextmanager
def identity() -> Iterator[None]:
    """Make the other user the effective user during the block; peers of sockets see that user."""
    os.seteuid(UID)
    try:
        yield
    finally:
        os.seteuid(0)


async def connect(path: str) -> trio.SocketStream:
    """Connect to a socket as the other user."""
    with identity():
        return await trio.open_unix_socket(path)


def _listens(path: str) -> bool:
    with identity():
        return listens(path)


def variables(path: Path, **more: str) -> dict[str, str]:
    """Return the environment of commands that the other user runs."""
    here = {"HOME": str(path), "XDG_CONFIG_HOME": str(path), "XDG_RUNTIME_DIR": str(path)}
    return environment(**here, **more)


def daemon_of_user(
    path: Path, prefix: Sequence[str] | None = None, **more: str
) -> AbstractAsyncContextManager[Daemon]:
    """Run a daemon as the other user.

    `prefix` are the words to put before a command to run it as the other user.
    """
    return daemon(
        path,
        env=variables(path, **more),
        prefix=as_user(UID) if prefix is None else prefix,
        is_ready=_listens,
        terminate=True,
    )


def python_as_user(code: str, *arguments: str) -> str:
    """Run Python code as the other user; return its output."""
    done = subprocess.run(
        [*as_user(UID), sys.executable, "-c", code, *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()
