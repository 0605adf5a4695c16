"""Recording of terminals: their output is written to files continuously.

Each terminal has one asciicast file, which only this user can read. Recording is off by default
(setting `record`). Rules:

- A recording reads the terminal's ring, as any reader does, and never delays the terminal. Output
  that the ring drops before the recording has read it is replaced by a marker.
- Files (`cast_file`) are written in separate threads, in batches: every `PERIOD_S` seconds, or
  earlier if `BATCH_BYTES` bytes are pending. A disk that hangs delays nothing else.
- If a file cannot be written, its recording stops, and a warning is logged. Nothing else is
  affected.
- After a take-over the new worker continues the file where the old worker stopped: nothing is
  missing or written twice.
- Input is recorded only if the setting `record_input` is on, and only if the terminal echoes it.

Ownership: each recording is a task of the nursery that is passed to `Recorder.start`, and the task
owns the file. The task ends when all output of the terminal is in the file and no more can follow,
when the file is full, or when the file cannot be written. When it is cancelled, it first writes the
pending output, within `CLOSE_TIMEOUT_S` seconds. So a host cancels the nursery at shutdown, after
its terminals are closed.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Final, TypeAlias

import structlog
import trio
from msgspec import Struct

from acpterm.config import Settings
from acpterm.recording.asciicast import INPUT, MARKER, RawEvent, header
from acpterm.recording.cast_file import CastFile, path_of
from acpterm.recording.walk import Walk, ending
from acpterm.runtime.threads import run_blocking
from acpterm.terminal.terminal import Terminal

PERIOD_S: Final = 0.2
BATCH_BYTES: Final = 256 * 1024
CLOSE_TIMEOUT_S: Final = 1.0
_EVENT_OVERHEAD_BYTES: Final = 1024  # counted for each event in addition to its data
_INPUT_BYTES_MAX: Final = 1024 * 1024  # of pending input, including the overhead of its events


class RecordingRecord(Struct, kw_only=True, omit_defaults=True):
    """The progress of a recording, from which the next worker continues the file."""

    position: int
    """The file contains the output up to this position."""
    size: int
    """The length of the file in bytes: the next worker removes anything beyond it."""
    has_exit: bool = False
    """Whether the file contains the marker with the exit status."""


OnProgress: TypeAlias = Callable[[RecordingRecord | None], None]

_log = structlog.get_logger("acpterm.recording")


class Recorder:
    """Starts and resumes the recordings of a host's terminals."""

    def __init__(
        self,
        settings: Settings,
        *,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
        input_bytes_max: int = _INPUT_BYTES_MAX,
    ) -> None:
        self._settings: Final = settings
        self._close_timeout_s: Final = close_timeout_s
        self._input_bytes_max: Final = input_bytes_max
        self._threads: Final = trio.CapacityLimiter(4)

    def start(
        self,
        terminal: Terminal,
        *,
        command: str,
        is_agents: bool = False,
        nursery: trio.Nursery,
        env: Mapping[str, str] = MappingProxyType({}),
        on_failure: Callable[[], None] = lambda: None,
        on_progress: OnProgress = lambda _: None,
    ) -> str:
        """Record a terminal from its beginning; return the file's path."""
        # To be called before the ring drops output. `on_progress` gets what `resume` needs after
        # each write, and None at the end.
        file = CastFile(path_of(terminal, self._settings, is_agents=is_agents), self._settings)
        walk = Walk(terminal)
        recording = self._new(terminal, file, walk, on_failure, on_progress)
        first = header(terminal.started, walk.size, command=command, env=env)
        nursery.start_soon(recording.run, partial(file.open, first))
        return file.path

    def resume(
        self,
        terminal: Terminal,
        path: str,
        progress: RecordingRecord,
        *,
        nursery: trio.Nursery,
        on_progress: OnProgress,
    ) -> None:
        """Continue a recording of the previous worker."""
        # Output that it has not recorded gets the time of the take-over.
        file = CastFile(path, self._settings)
        walk = Walk(terminal, progress.position)
        recording = self._new(terminal, file, walk, lambda: None, on_progress)
        recording.has_exit = progress.has_exit
        nursery.start_soon(recording.run, partial(file.resume, progress.size))

    def _new(
        self,
        terminal: Terminal,
        file: CastFile,
        walk: Walk,
        on_failure: Callable[[], None],
        on_progress: OnProgress,
    ) -> "_Recording":
        recording = _Recording(
            terminal,
            file,
            walk,
            self._threads,
            close_timeout_s=self._close_timeout_s,
            input_bytes_max=self._input_bytes_max,
            on_failure=on_failure,
            on_progress=on_progress,
        )
        if self._settings.record_input:
            terminal.keyboard.listeners.append(recording.record_input)
        return recording


class _Recording:
    """The recording of one terminal."""

    def __init__(
        self,
        terminal: Terminal,
        file: CastFile,
        walk: Walk,
        threads: trio.CapacityLimiter,
        *,
        close_timeout_s: float,
        input_bytes_max: int,
        on_failure: Callable[[], None],
        on_progress: OnProgress,
    ) -> None:
        self._on_progress = on_progress
        self._on_failure = on_failure
        self._terminal = terminal
        self._file = file
        self._threads = threads
        self._close_timeout_s = close_timeout_s
        self._input_bytes_max = input_bytes_max
        self.walk = walk
        self._inputs: deque[tuple[int, RawEvent]] = deque()  # each with its position in the output
        self._input_bytes = 0
        self.has_exit = False

    def record_input(self, piece: bytes, echoed: bool) -> None:
        """Record input that the terminal has echoed: passwords are not echoed."""
        if not echoed:
            return
        timeline = self._terminal.timeline
        event = RawEvent(time.monotonic() - timeline.start, INPUT, piece)
        if self._input_bytes + len(piece) > self._input_bytes_max:
            if self._inputs[-1][1].code == MARKER:
                return
            event = event._replace(code=MARKER, data=b"input is missing here")
        self._input_bytes += len(event.data) + _EVENT_OVERHEAD_BYTES
        self._inputs.append((timeline.end, event))

    async def run(self, open_file: Callable[[], None]) -> None:
        """Write the file until the recording ends; when cancelled, write what is pending."""
        try:
            try:
                await self._in_thread(open_file)
                self._report(self.walk.position)
                await self._follow()
                await self._in_thread(self._file.close)
            except trio.Cancelled:
                with trio.move_on_after(self._close_timeout_s, shield=True) as scope:
                    await self._write()
                    await self._in_thread(self._file.close)
                if not scope.cancelled_caught:
                    raise
                self._file.closing = True
                raise TimeoutError("the disk is too slow") from None
        except OSError as error:
            _log.warning("a recording was given up", terminal=self._terminal.id, error=str(error))
            if not self._file.exists:
                self._on_failure()
        except Exception as error:  # noqa: BLE001  a bug met by one recording costs the others nothing
            _log.error("a recording failed", terminal=self._terminal.id, exc_info=error)
        finally:
            self._on_progress(None)
            with contextlib.suppress(ValueError):
                self._terminal.keyboard.listeners.remove(self.record_input)

    async def _follow(self) -> None:
        while True:
            is_last = self._terminal.output_closed
            if not await self._write() or is_last:
                return
            if not self._unwritten():
                await self._terminal.wait_changed()
            with trio.move_on_after(PERIOD_S):
                while self._unwritten() < BATCH_BYTES:
                    await self._terminal.wait_changed()

    def _unwritten(self) -> int:
        """Return how many bytes of output are not written; `BATCH_BYTES` if there is no waiting."""
        terminal = self._terminal
        if terminal.output_closed or (terminal.exit is not None and not self.has_exit):
            return BATCH_BYTES
        return terminal.timeline.end - self.walk.position

    async def _write(self) -> bool:
        """Write all that has come until now; return whether the file is still open."""
        until, status = self._terminal.timeline.end, self._terminal.exit
        while self._queue_batch(until):
            if not await self._write_file():
                return False
        if status is not None and not self.has_exit:
            self.has_exit = True
            self._file.events.append(ending(status))
            return await self._write_file()
        return True

    async def _write_file(self) -> bool:
        position = self.walk.position
        if not await self._in_thread(self._file.write):
            return False
        self._report(max(0, position - self._file.buffered_bytes))
        return True

    def _report(self, position: int) -> None:
        size = self._file.size
        self._on_progress(RecordingRecord(position=position, size=size, has_exit=self.has_exit))

    def _queue_batch(self, until: int) -> int:
        """Add the next events, some `BATCH_BYTES`, to the file's; return their size."""
        size = 0
        while size < BATCH_BYTES:
            input_at = self._inputs[0][0] if self._inputs else until + 1
            event = self.walk.step(min(input_at, until))
            if event is None:
                if input_at > until:
                    break
                _, event = self._inputs.popleft()
                self._input_bytes -= len(event.data) + _EVENT_OVERHEAD_BYTES
            self._file.events.append(event)
            size += len(event.data) + _EVENT_OVERHEAD_BYTES
        return size

    async def _in_thread(self, work: Callable[[], bool | None]) -> bool:
        # After a cancel the thread keeps running, and the next thread waits for the file's lock.
        return bool(await run_blocking(work, abandon_on_cancel=True, limiter=self._threads))
