"""Keeps the directory of an agent's command before it runs, for `acpterm undo`.

A process of its own does the work (`acpterm.undo`); the command waits for it a short time. The
first snapshot of a large directory takes longer: it is completed beside the command, which then has
no way back. Such a snapshot is not one of before:

    host:      a byte into the pipe ──▶ the command starts
    process:   all is read ──▶ the pipe is checked ──▶ named "before …" if nothing is in it, and
                                                         it is open; otherwise "during …"

So is one whose host dies, since another host may start the command again.
"""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final, TypeAlias

import structlog
import trio

from acpterm.config import undo_dir
from acpterm.host.way_back import Kept, brings_back
from acpterm.policy.losses.loss import Finding, Loss
from acpterm.providers.provider import is_place
from acpterm.runtime.bounded_dict import BoundedDict
from acpterm.runtime.threads import run_blocking
from acpterm.undo.scan import FILES_ONLY, UnkeptError, root_of
from acpterm.undo.store import Store
from acpterm.undo.terminals import note

DELAY_MAX_S: Final = 0.3
# What cannot be kept is not tried before each command.
RETRY_S: Final = 300.0
# Such as that of a file system that no longer answers.
SNAPSHOT_MAX_S: Final = 300.0
_KILL_MAX_S: Final = 2.0
# Snapshots that are taken at once: a flood of directories starts no flood of processes.
_RUNNING_MAX: Final = 4
_DIRECTORIES_MAX: Final = 1000
BUSY: Final = "the snapshot of its directory is not complete yet"
_OVERTAKEN: Final = "another command began during the snapshot of its directory"

# Directories that do not answer hold up no others' work.
_threads: Final = trio.CapacityLimiter(_RUNNING_MAX)

StartTask: TypeAlias = Callable[..., object]

_log = structlog.get_logger("acpterm.undo")


class _Running:
    """A snapshot that is being taken."""

    def __init__(self) -> None:
        self.kept: Final = trio.Event()
        self.ended: Final = trio.Event()
        self.why = BUSY
        """Why there is no snapshot of before; "" if there is."""
        self.skipped: tuple[str, ...] = ()
        self.read_end, self._write_end = os.pipe()

    def mark(self) -> None:
        """Tell the process that a command begins."""
        if self._write_end >= 0:
            # To close it is not enough: a program that is being started may have a copy.
            os.write(self._write_end, b"\n")
            os.close(self._write_end)
            self._write_end = -1

    def note(self, why: str, skipped: Iterable[str] = ()) -> None:
        self.why, self.skipped = why, tuple(skipped)
        self.kept.set()

    def close(self) -> None:
        self.mark()
        os.close(self.read_end)
        self.kept.set()
        self.ended.set()


class Snapshots:
    """Takes snapshots, unless `is_on` is false, in tasks that `start_task` starts."""

    def __init__(self, start_task: StartTask, *, is_on: bool) -> None:
        self._start_task: Final = start_task
        self.is_on: Final = is_on
        # When a root could not be kept, and why.
        self._failed: Final[BoundedDict[str, tuple[float, str]]] = BoundedDict(_DIRECTORIES_MAX)
        self._running: Final[dict[str, _Running]] = {}

    async def keep(self, directory: str, provider: str, *, max_s: float = DELAY_MAX_S) -> Kept:
        """Keep `directory` for a question."""
        if not self.is_on or is_place(provider):
            return Kept(None)
        _, kept = await self._keep(directory, max_s)
        return kept

    async def brings_back(
        self, lost: Mapping[Loss, Finding] | None, kept: Kept, directory: str, home: str
    ) -> bool:
        """Return whether all of `lost` comes back; false if that is not known in time."""
        work = partial(brings_back, lost, kept, directory, home)
        with trio.move_on_after(DELAY_MAX_S):
            return await run_blocking(work, abandon_on_cancel=True, limiter=_threads)
        return False

    async def begin(
        self, directory: str, provider: str, *, max_s: float = DELAY_MAX_S
    ) -> str | None:
        """Keep `directory` before a command that starts now.

        Return why it has no way back, `FILES_ONLY`, "", or None if snapshots are off.
        """
        if not self.is_on or is_place(provider):
            return None
        root, kept = await self._keep(directory, max_s)
        for other, running in self._running.items():
            if root is None or _overlaps(root, other):
                running.mark()
        return kept.why

    def note(self, terminal: str, began: float, directory: str) -> None:
        """Let `acpterm undo` know a terminal after its release, too."""
        self._start_task(self._note, terminal, began, directory)

    async def _note(self, terminal: str, began: float, directory: str) -> None:
        def work() -> None:
            note(Store(undo_dir(), root_of(directory)), terminal, began)

        with suppress(OSError, UnkeptError):
            await run_blocking(work, abandon_on_cancel=True, limiter=_threads)

    async def _keep(self, directory: str, max_s: float) -> tuple[str | None, Kept]:
        root = None
        with trio.move_on_after(max_s):
            try:
                find = partial(root_of, directory)
                root = await run_blocking(find, abandon_on_cancel=True, limiter=_threads)
            except (UnkeptError, OSError) as error:
                return directory, Kept(str(error))
            failed_at, why = self._failed.get(root, (-RETRY_S, ""))
            if time.monotonic() - failed_at < RETRY_S:
                return root, Kept(why)
            # That of another command may have begun before what this one's session has changed.
            while (earlier := self._running.get(root)) is not None:
                await earlier.ended.wait()
            if len(self._running) >= _RUNNING_MAX:
                return root, Kept(BUSY)
            running = self._running[root] = _Running()
            self._start_task(self._run, root, running)
            await running.kept.wait()
            # It has just been read, so this does not hang.
            why = running.why or ("" if _has_own_state(root) else FILES_ONLY)
            return root, Kept(why, root, running.skipped)
        return root, Kept(BUSY)

    async def _run(self, root: str, running: _Running) -> None:
        try:
            with trio.move_on_after(SNAPSHOT_MAX_S) as limit:
                await _snapshot(root, running)
            if limit.cancelled_caught and not running.kept.is_set():
                self._fail(root, running, "the snapshot of its directory took too long")
        except UnkeptError as error:
            self._fail(root, running, str(error))
        except OSError as error:
            self._fail(root, running, f"no snapshot can be taken: {error.strerror}")
        finally:
            del self._running[root]
            running.close()

    def _fail(self, root: str, running: _Running, why: str) -> None:
        _log.info("no snapshot", directory=root, reason=why)
        self._failed.pop(root, None)
        self._failed[root] = time.monotonic(), why
        running.note(why)


def _has_own_state(root: str) -> bool:
    """Return whether the repository of a directory, if it has one, is in it."""
    git = os.path.join(root, ".git")
    return not os.path.lexists(git) or (os.path.isdir(git) and not os.path.islink(git))


def _overlaps(one: str, other: str) -> bool:
    one, other = os.path.join(one, ""), os.path.join(other, "")
    return one.startswith(other) or other.startswith(one)


async def _snapshot(root: str, running: _Running) -> None:
    """Run the process to its end, which may prune; note when the snapshot is kept.

    Raises `UnkeptError`.
    """
    argv = [sys.executable, "-P", "-m", "acpterm.undo", "keep", undo_dir(), root]
    process = await trio.lowlevel.open_process(
        argv, stdin=running.read_end, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None  # noqa: S101
    try:
        answer = b""
        async with process.stdout as stdout:
            while not answer.endswith(b"\n") and (chunk := await stdout.receive_some()):
                answer += chunk
        found = json.loads(answer or b'{"error": "the snapshot failed"}')
        if "error" in found:
            raise UnkeptError(found["error"])
        running.note("" if found["is_before"] else _OVERTAKEN, found["skipped"])
        await process.wait()
    finally:
        # A snapshot can be interrupted anywhere.
        process.kill()
        # One that hangs in the kernel is left.
        with trio.move_on_after(_KILL_MAX_S, shield=True):
            await process.wait()
