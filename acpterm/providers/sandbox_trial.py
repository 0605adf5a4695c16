"""Trials: a sandbox is run once with `true`, before anything is run in it.

Whether a sandbox works depends on the kernel, its settings, security modules and containers around.
Only running it tells.
"""

import contextlib
import os
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
    """The result of the last trial; a success is valid for 60 s, a failure is not remembered."""

    def __init__(self) -> None:
        self._key: object = None
        self._until = 0.0
        self._lock: Final = trio.Lock()

    async def ensure(self, key: object, attempt: Callable[[], Awaitable[object]]) -> None:
        """Await `attempt` unless it has succeeded lately with the same `key`; its errors propagate.

        `key` identifies the programs that are tried.
        """
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
    """Return a value that changes if one of the files is replaced or changed.

    `name` is the provider's. Raises `ProviderError` if a file does not exist any more.
    """
    try:
        found = [os.stat(path) for path in paths]
    except OSError as error:
        raise ProviderError(f"{name}: {error.filename}: cannot be run: {error.strerror}") from error
    return paths, tuple((one.st_dev, one.st_ino, one.st_mtime_ns) for one in found)


@asynccontextmanager
async def trial_directory(name: str) -> AsyncIterator[str]:
    """Create an empty directory for a trial, and remove it at the end of the block.

    `name` is the provider's. Raises `ProviderError` if the directory cannot be created.
    """
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
        with contextlib.suppress(OSError):
            os.rmdir(directory)


async def run_trial(
    name: str, argv: Sequence[str], env: Mapping[str, str], cause: Callable[[str], str]
) -> str:
    """Run a sandbox that executes `true`; return what it prints. Raises `ProviderError`.

    `name` is the provider's. `cause` returns why it has failed, and what to do, from its errors.
    """
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
