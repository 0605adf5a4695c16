"""Keeps the directory of an agent's command before it runs, for `acpterm undo`.

A process of its own does the work (`acpterm.undo`); the command waits for it a short time. The
first snapshot of a large directory takes longer: it is completed beside the command, which then has
no way back.
"""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Final, TypeAlias

import structlog
import trio

from acpterm.config import undo_dir
from acpterm.policy.verdict import Level
from acpterm.providers.provider import is_place
from acpterm.runtime.bounded_dict import BoundedDict

DELAY_MAX_S: Final = 0.3
# Commands that are not dangerous have a snapshot that is at most this old.
PERIOD_S: Final = 300.0
# Snapshots that are taken at once: a flood of directories starts no flood of processes.
_RUNNING_MAX: Final = 2
_DIRECTORIES_MAX: Final = 1000
_BUSY: Final = "the snapshot of its directory is not complete yet"

StartTask: TypeAlias = Callable[..., object]

_log = structlog.get_logger("acpterm.undo")


class Snapshots:
    """Takes snapshots, unless `is_on` is false, in tasks that `start_task` starts."""

    def __init__(self, start_task: StartTask, *, is_on: bool) -> None:
        self._start_task: Final = start_task
        self._is_on: Final = is_on
        # When a session's directory was last kept, and why it was not.
        self._kept: Final[BoundedDict[tuple[str, str], tuple[float, str]]] = BoundedDict(
            _DIRECTORIES_MAX
        )
        self._running: Final[dict[str, trio.Event]] = {}

    async def keep(self, session: str, directory: str, level: Level, provider: str) -> str | None:
        """Keep `directory` before a command of `session`.

        Return why it has no way back, "", or None if it needs none or snapshots are off.
        """
        if not self._is_on or level is Level.SAFE or is_place(provider):
            return None
        kept_at, why = self._kept.get((session, directory), (-PERIOD_S, ""))
        # What cannot be kept is not tried before each command.
        if time.monotonic() - kept_at < PERIOD_S and (why or level is not Level.DANGEROUS):
            return why
        with trio.move_on_after(DELAY_MAX_S):
            # That of another session may have begun before what this one has changed.
            while (earlier := self._running.get(directory)) is not None:
                await earlier.wait()
            if len(self._running) >= _RUNNING_MAX:
                return _BUSY
            done = trio.Event()
            self._running[directory] = trio.Event()
            label = f"before {'a dangerous' if level is Level.DANGEROUS else 'an unknown'} command"
            self._start_task(self._run, (session, directory), label, done)
            await done.wait()
            return self._kept.get((session, directory), (0.0, ""))[1]
        return _BUSY

    async def _run(self, key: tuple[str, str], label: str, done: trio.Event) -> None:
        def note(why: str) -> None:
            self._kept.pop(key, None)
            self._kept[key] = time.monotonic(), why
            done.set()

        try:
            await _snapshot(key[1], label, note)
        except OSError as error:
            note(f"no snapshot can be taken: {error.strerror}")
        finally:
            self._running.pop(key[1]).set()
            done.set()


async def _snapshot(directory: str, label: str, note: Callable[[str], None]) -> None:
    """Run the process to its end, which may prune; call `note` once the snapshot is kept."""
    argv = [sys.executable, "-P", "-m", "acpterm.undo", "keep", undo_dir(), directory, label]
    process = await trio.lowlevel.open_process(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    )
    assert process.stdout is not None  # noqa: S101
    try:
        answer = b""
        async with process.stdout as stdout:
            while not answer.endswith(b"\n") and (chunk := await stdout.receive_some()):
                answer += chunk
        why = json.loads(answer or b'{"error": "the snapshot failed"}').get("error", "")
        note(why)
        if why:
            _log.info("no snapshot", directory=directory, reason=why)
        await process.wait()
    finally:
        # A snapshot can be interrupted anywhere.
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
