"""Tries out a sandbox: runs `true` in it, before a terminal's command is run in it.

Whether a sandbox works depends on the kernel, on the kernel's settings and security modules, and on
the container around acpterm, if there is one. Only a trial shows it. (`container` has one for
podman and docker.)
"""

import os
import shutil
import tempfile
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from subprocess import DEVNULL
from typing import Final

import trio

from acpterm.providers.provider import ProviderError

_VALID_S: Final = 60.0
_TIMEOUT_S: Final = 10.0
_OUTPUT_MAX: Final = 500


class Trial:
    """Remembers that a trial has succeeded, for 60 s; failures are not remembered."""

    def __init__(self) -> None:
        self._key: object = None
        self._until = 0.0
        self._lock: Final = trio.Lock()

    async def ensure(self, key: object, attempt: Callable[[], Awaitable[object]]) -> None:
        """Call `attempt` unless it has succeeded with this `key` in the last 60 s."""
        # Callers at the same time wait for one trial. Its error is that of the caller that ran it
        # only.
        if self._is_valid(key):
            await trio.lowlevel.checkpoint()
            return
        async with self._lock:
            if not self._is_valid(key):
                await attempt()
                self._key, self._until = key, time.monotonic() + _VALID_S

    def _is_valid(self, key: object) -> bool:
        return self._key == key and time.monotonic() < self._until


def file_identity(name: str, *paths: str) -> object:
    """Return a value that differs after one of the files was changed. Raises `ProviderError`."""
    try:
        found = [os.stat(path) for path in paths]
    except OSError as error:
        raise ProviderError(f"{name}: {error.filename}: cannot be run: {error.strerror}") from error
    return paths, tuple((one.st_dev, one.st_ino, one.st_mtime_ns) for one in found)


@asynccontextmanager
async def trial_directory(name: str) -> AsyncIterator[str]:
    """Yield a new, empty directory for a trial; remove it at the end."""
    try:
        directory = tempfile.mkdtemp(prefix="acpterm-trial-")
    except OSError as error:
        raise ProviderError(
            f"{name}: a trial needs a directory for temporary files, and none can be created: "
            f"{error.strerror}: set TMPDIR to a directory that is writable"
        ) from error
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


async def run_trial(
    name: str, argv: Sequence[str], env: Mapping[str, str], cause: Callable[[str], str]
) -> str:
    """Run a trial such as `true` in a sandbox; return its stdout. Raises `ProviderError`."""
    try:
        with trio.fail_after(_TIMEOUT_S):
            done = await trio.run_process(
                argv, env=env, stdin=DEVNULL, capture_stdout=True, capture_stderr=True, check=False
            )
    except trio.TooSlowError:
        raise ProviderError(f"{name}: a trial did not end within {_TIMEOUT_S:g} s") from None
    except OSError as error:
        raise ProviderError(f"{name}: {argv[0]}: cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        text = os.fsdecode(done.stderr).strip()[-_OUTPUT_MAX:]
        raise ProviderError(
            f"{name}: the sandbox cannot be set up, so nothing is run: {cause(text)} "
            f"[{text or f'exit status {done.returncode}'}]"
        )
    return os.fsdecode(done.stdout).strip()
