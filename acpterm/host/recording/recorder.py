"""Recordings: what terminals print, written to files as it comes, for those who ask for that.

One asciicast for each terminal, for this user alone, named by the terminal's start and id. Off by
default (`record`). Rules:

- A recording is one reader more: it follows the terminal's ring by position, and what the ring has
  dropped before it was written is told of by a marker. It never holds up a terminal.
- Files (`castfile`) are written in threads of their own, a batch at a time: each `PERIOD` seconds,
  or `BATCH` bytes. A disk that hangs holds up nobody else.
- A file that cannot be written is given up for good, with a line in the log; nothing else is hurt.
- A worker that takes over goes on with the file where the one before had written to: nothing is
  missing, and nothing twice.
- Input, if that is wanted, is noted when it is typed, and only if the terminal's echo shows it.

Who owns what: the nursery given to `Recorder.start` owns a task, which owns the file. The task ends
when nothing more can come from the terminal and all it printed is in the file; or when the file is
full, or given up. When it is cancelled it writes what there is by then, within `FAREWELL` seconds:
so a host that ends cancels that nursery when its terminals are gone.
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

from acpterm.config import Settings
from acpterm.host.recording.asciicast import INPUT, MARKER, Event, Walk, ending, header
from acpterm.host.recording.cast_file import CastFile, path_of
from acpterm.host.state.records import RecordingRecord
from acpterm.runtime.threads import run_blocking
from acpterm.terminal.terminal import Terminal

PERIOD_S: Final = 0.2
BATCH_BYTES: Final = 256 * 1024
CLOSE_TIMEOUT_S: Final = 1.0
_EVENT_OVERHEAD_BYTES: Final = 1024  # what an event counts beside its bytes
_INPUT_BYTES_MAX: Final = 1024 * 1024  # of what was typed and waits to be written, so counted

OnProgress: TypeAlias = Callable[[RecordingRecord | None], None]

_log = structlog.get_logger("acpterm.recording")


class Recorder:
    """Records terminals as the settings say."""

    def __init__(self, settings: Settings) -> None:
        self._settings: Final = settings
        self._threads: Final = trio.CapacityLimiter(4)

    def start(
        self,
        terminal: Terminal,
        *,
        command: str,
        is_agents: bool = False,
        nursery: trio.Nursery,
        env: Mapping[str, str] = MappingProxyType({}),
        gave_up: Callable[[], None] = lambda: None,
        on_progress: OnProgress = lambda _: None,
    ) -> str:
        """Record `terminal` from its beginning, in a task of `nursery`: the path of its file.

        To be called when it has just been made: what its ring has dropped is gone. `command` is
        the title; of `env`, the program's, the file has `TERM` and `SHELL`. It is made later, if
        that can be. `is_agents`: whether an agent made the terminal. `on_progress` is called with
        what `resume` needs, and None at the end.
        """
        file = CastFile(path_of(terminal, self._settings, is_agents=is_agents), self._settings)
        walk = Walk(terminal)
        recording = self._new(terminal, file, walk, gave_up, on_progress)
        first = header(terminal, walk.size, command=command, env=env)
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
        """Go on with the recording of a terminal that was taken over, in the same file.

        Nothing is missing in it, and nothing twice; output that was not written before has the time
        of the take-over.
        """
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
        gave_up: Callable[[], None],
        on_progress: OnProgress,
    ) -> "_Recording":
        recording = _Recording(
            terminal, file, walk, self._threads, gave_up=gave_up, on_progress=on_progress
        )
        if self._settings.record_input:
            terminal.keyboard.listeners.append(recording.typed)
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
        gave_up: Callable[[], None],
        on_progress: OnProgress,
    ) -> None:
        self._on_progress = on_progress
        self._on_failure = gave_up
        self._terminal = terminal
        self._file = file
        self._threads = threads
        self.walk = walk
        self._inputs: deque[tuple[int, Event]] = deque()  # each with its position in the output
        self._waiting = 0
        self.has_exit = False

    def typed(self, piece: bytes, shown: bool) -> None:
        """Note what was typed."""
        if not shown:
            return
        timeline = self._terminal.timeline
        event = Event(time.monotonic() - timeline.start, INPUT, piece)
        if self._waiting + len(piece) > _INPUT_BYTES_MAX:
            if self._inputs[-1][1].code == MARKER:
                return
            event = event._replace(code=MARKER, data=b"input is missing here")
        self._waiting += len(event.data) + _EVENT_OVERHEAD_BYTES
        self._inputs.append((timeline.end, event))

    async def run(self, open_file: Callable[[], None]) -> None:
        """Write the file, which `open_file` opens."""
        try:
            try:
                await self._in_thread(open_file)
                self._report(self.walk.position)
                await self._follow()
                await self._in_thread(self._file.close)
            except trio.Cancelled:
                with trio.move_on_after(CLOSE_TIMEOUT_S, shield=True) as scope:
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
                self._terminal.keyboard.listeners.remove(self.typed)

    async def _follow(self) -> None:
        """Write what comes, until nothing more can or the file is full."""
        while True:
            over = self._terminal.output_closed
            if not await self._write() or over:
                return
            if not self._wait_for_news():
                await self._terminal.wait_changed()
            with trio.move_on_after(PERIOD_S):
                while self._wait_for_news() < BATCH_BYTES:
                    await self._terminal.wait_changed()

    def _wait_for_news(self) -> int:
        """Tell how many bytes there are to write, or `BATCH`, if that should not be put off."""
        terminal = self._terminal
        if terminal.output_closed or (terminal.exit is not None and not self.has_exit):
            return BATCH_BYTES
        return terminal.timeline.end - self.walk.position

    async def _write(self) -> bool:
        """Write what has come up to now; whether there is room for more."""
        until, status = self._terminal.timeline.end, self._terminal.exit
        while self._take(until):
            if not await self._write_file():
                return False
        if status is not None and not self.has_exit:
            self.has_exit = True
            self._file.events.append(ending(status))
            return await self._write_file()
        return True

    async def _write_file(self) -> bool:
        """Write what the file was given; return whether there is room for more."""
        position = self.walk.position
        if not await self._in_thread(self._file.write):
            return False
        self._report(max(0, position - self._file.buffered_bytes))
        return True

    def _report(self, position: int) -> None:
        size = self._file.size
        self._on_progress(RecordingRecord(position=position, size=size, has_exit=self.has_exit))

    def _take(self, until: int) -> int:
        """Give the file the next batch; its size."""
        size = 0
        while size < BATCH_BYTES:
            typed = self._inputs[0][0] if self._inputs else until + 1
            event = self.walk.step(min(typed, until))
            if event is None:
                if typed > until:
                    break
                _, event = self._inputs.popleft()
                self._waiting -= len(event.data) + _EVENT_OVERHEAD_BYTES
            self._file.events.append(event)
            size += len(event.data) + _EVENT_OVERHEAD_BYTES
        return size

    async def _in_thread(self, work: Callable[[], bool | None]) -> bool:
        # Cancelled, a thread that has begun goes on, and the next one waits for the file.
        return bool(await run_blocking(work, abandon_on_cancel=True, limiter=self._threads))
