"""Recordings: what terminals print, written to files as it comes, for those who ask for that.

One asciicast for each terminal, for this user alone, named by the terminal's start and id. Off by
default (`record`). Rules:

- A recording is one reader more: it follows the terminal's ring by position, and what the ring has
  dropped before it was written is told of by a marker. It never holds up a terminal.
- Files are written in threads of their own, a batch at a time: each `PERIOD` seconds, or `BATCH`
  bytes. A disk that hangs holds up nobody else.
- A file that cannot be written is given up for good, with a line in the log; nothing else is hurt.
- Input, if that is wanted, is noted when it is typed, and only if the terminal's echo shows it.

Who owns what: the nursery given to `Recorder.start` owns a task, which owns the file. The task ends
when the terminal is gone and all it printed is in the file; or when the file is full, or given up.
When it is cancelled it writes what there is by then, within `FAREWELL` seconds: so a host that ends
cancels that nursery when its terminals are gone.
"""

import contextlib
import fcntl
import os
import re
import stat
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import structlog
import trio

from acpterm.config import Settings, default_record_dir
from acpterm.host.asciicast import INPUT, MARKER, Encoder, Event, Walk, ending, header
from acpterm.terminal.terminal import Terminal

PERIOD: Final = 0.2
BATCH: Final = 256 * 1024
FAREWELL: Final = 1.0
_EACH: Final = 1024  # what an event counts beside its bytes
_INPUT: Final = 1024 * 1024  # of what was typed and waits to be written, so counted
_LAST: Final = 256  # bytes of a file that are kept for the marker that says that it is full
_NAME: Final = re.compile(r"\d{8}T\d{6}Z-[\w-]+\.cast")

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
        nursery: trio.Nursery,
        env: Mapping[str, str] = MappingProxyType({}),
        gave_up: Callable[[], None] = lambda: None,
    ) -> str:
        """Record `terminal` from its beginning, in a task of `nursery`: the path of its file.

        To be called when it has just been made: what its ring has dropped is gone. `command` is
        the title; of `env`, the program's, the file has `TERM` and `SHELL`. It is made later, if
        that can be.
        """
        file = _File(terminal, self._settings)
        recording = _Recording(terminal, file, self._threads, gave_up)
        if self._settings.record_input:
            terminal.keyboard.listeners.append(recording.typed)
        first = header(terminal, recording.walk.size, command=command, env=env)
        nursery.start_soon(recording.run, first)
        return file.path


class _Recording:
    """The recording of one terminal."""

    def __init__(
        self,
        terminal: Terminal,
        file: "_File",
        threads: trio.CapacityLimiter,
        gave_up: Callable[[], None],
    ) -> None:
        self._gave_up = gave_up
        self._terminal = terminal
        self._file = file
        self._threads = threads
        self.walk = Walk(terminal)
        self._inputs: deque[tuple[int, Event]] = deque()  # each with its position in the output
        self._waiting = 0
        self._told = False

    def typed(self, piece: bytes, shown: bool) -> None:
        """Note what was typed."""
        if not shown:
            return
        timeline = self._terminal.timeline
        event = Event(time.monotonic() - timeline.start, INPUT, piece)
        if self._waiting + len(piece) > _INPUT:
            if self._inputs[-1][1].code == MARKER:
                return
            event = event._replace(code=MARKER, data=b"input is missing here")
        self._waiting += len(event.data) + _EACH
        self._inputs.append((timeline.end, event))

    async def run(self, first: bytes) -> None:
        """Write the file, with `first` as its first line."""
        try:
            try:
                await self._in_thread(lambda: self._file.open(first))
                await self._follow()
                await self._in_thread(self._file.close)
            except trio.Cancelled:
                with trio.move_on_after(FAREWELL, shield=True) as scope:
                    await self._write()
                    await self._in_thread(self._file.close)
                if not scope.cancelled_caught:
                    raise
                self._file.closing = True
                raise TimeoutError("the disk is too slow") from None
        except OSError as error:
            _log.warning("a recording was given up", terminal=self._terminal.id, error=str(error))
            if not self._file.made:
                self._gave_up()
        except Exception as error:  # noqa: BLE001  a bug met by one recording costs the others nothing
            _log.error("a recording failed", terminal=self._terminal.id, exc_info=error)
        finally:
            with contextlib.suppress(ValueError):
                self._terminal.keyboard.listeners.remove(self.typed)

    async def _follow(self) -> None:
        """Write what comes, until the terminal is gone or the file is full."""
        while True:
            gone = self._terminal.gone
            if not await self._write() or gone:
                return
            if not self._news():
                await self._terminal.wait_news()
            with trio.move_on_after(PERIOD):
                while self._news() < BATCH:
                    await self._terminal.wait_news()

    def _news(self) -> int:
        """Tell how many bytes there are to write, or `BATCH`, if that should not be put off."""
        terminal = self._terminal
        if terminal.gone or (terminal.exit is not None and not self._told):
            return BATCH
        return terminal.timeline.end - self.walk.position

    async def _write(self) -> bool:
        """Write what has come up to now; whether there is room for more."""
        until, status = self._terminal.timeline.end, self._terminal.exit
        while self._take(until):
            if not await self._in_thread(self._file.write):
                return False
        if status is not None and not self._told:
            self._told = True
            self._file.events.append(ending(status))
            return await self._in_thread(self._file.write)
        return True

    def _take(self, until: int) -> int:
        """Give the file the next batch; its size."""
        size = 0
        while size < BATCH:
            typed = self._inputs[0][0] if self._inputs else until + 1
            event = self.walk.step(min(typed, until))
            if event is None:
                if typed > until:
                    break
                _, event = self._inputs.popleft()
                self._waiting -= len(event.data) + _EACH
            self._file.events.append(event)
            size += len(event.data) + _EACH
        return size

    async def _in_thread(self, work: Callable[[], bool | None]) -> bool:
        # Cancelled, a thread that has begun goes on, and the next one waits for the file.
        run = trio.to_thread.run_sync
        return bool(await run(work, abandon_on_cancel=True, limiter=self._threads))


class _File:
    """The file of one recording. Its methods are called in threads, and may wait for the disk.

    States: *new*; *open*; *closed*, for good: by `close`, full, or by an `OSError` that a method
    has raised. What is written to one that is not open is dropped.
    """

    # Held while old files are counted and a new one is made.
    _making: Final = threading.Lock()

    def __init__(self, terminal: Terminal, settings: Settings) -> None:
        when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(terminal.started))
        folder = settings.record_dir or default_record_dir()
        self.path: Final = os.path.join(folder, f"{when}-{terminal.id}.cast")
        self._settings: Final = settings
        self._encoder: Final = Encoder()
        self._lock: Final = threading.Lock()
        #: To be written: in order, whichever thread comes first.
        self.events: Final[deque[Event]] = deque()
        #: Whether to close it with the next write, or the one that has begun.
        self.closing = False
        #: Whether there is one.
        self.made = False
        self._fd = -1
        self._size = 0

    def open(self, first: bytes) -> None:
        """Remove old files, and begin this one with the line `first`."""
        with self._lock, self._making:
            if self.closing:
                return
            folder = _open_folder(os.path.dirname(self.path))
            try:
                _remove_old(folder, self._settings.record_files - 1)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(os.path.basename(self.path), flags, 0o600, dir_fd=folder)
                self.made = True
            finally:
                os.close(folder)
            with contextlib.suppress(OSError):  # that there are no locks; see `_remove_old`
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._append(first)

    def write(self) -> bool:
        """Write what there is to write; whether there is room for more."""
        with self._lock:
            if self._fd < 0:
                return False
            lines: list[bytes] = []
            room = self._settings.record_bytes - _LAST - self._size
            while self.events and room >= 0:
                event = self.events.popleft()
                lines.append(self._encoder.encode(event))
                room -= len(lines[-1])
                if room < 0:
                    last = Event(event.time, MARKER, b"the recording ends here: it is full")
                    lines[-1] = self._encoder.encode(last)
            if self.closing:
                lines.append(self._encoder.finish())
            self._append(b"".join(lines))
            if room < 0 or self.closing:
                self._close()
            return self._fd >= 0

    def close(self) -> None:
        """Write what there is, and close the file."""
        self.closing = True
        self.write()

    def _append(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            # Half a line is none.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self._size + data.rfind(b"\n", 0, written) + 1)
            self._close()
            raise
        self._size += written

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


def _open_folder(path: str) -> int:
    """Open the folder, made if it is missing. Raises `OSError` if others could write to it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.fstat(folder)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(folder)
        what = f"uid {found.st_uid}, mode {stat.S_IMODE(found.st_mode):o}): run chmod 700 {path}"
        raise PermissionError(f"{path} is not for this user alone ({what}, or set record_dir")
    return folder


def _remove_old(folder: int, number: int) -> None:
    """Remove the oldest recordings until there are `number`, but none that is being written."""
    names = sorted(filter(_NAME.fullmatch, os.listdir(folder)))
    surplus = len(names) - number
    for name in names:
        if surplus <= 0:
            return
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name, flags, dir_fd=folder)
            try:
                if not _is_locked(file):
                    os.unlink(name, dir_fd=folder)
                    surplus -= 1
            finally:
                os.close(file)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # or there are no locks
        return isinstance(error, BlockingIOError)
    return False
