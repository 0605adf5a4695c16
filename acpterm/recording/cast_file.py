"""The file of one recording, in a directory that no other user can write to.

Rules:

- The file name has the time of the terminal's start, the terminal's id, and a suffix that says
  whether an agent created the terminal. The time comes first, so that names sort by age.
- There are at most `record_files` (a setting) recordings of terminals that the user created, and as
  many of terminals that agents created: the oldest are removed before a new file is created. A file
  that is being written is locked, and is not removed.
- A file has at most `record_bytes` (a setting) bytes; a marker at the end says that the file is
  full.
- The file has whole lines only: a line that could be written only in part is removed.
"""

import contextlib
import fcntl
import os
import re
import stat
import threading
import time
from collections import deque
from typing import Final

from acpterm.config import Settings, default_record_dir
from acpterm.recording.asciicast import MARKER, Encoder, RawEvent
from acpterm.terminal.terminal import Terminal

_FULL_MARKER_BYTES: Final = 256  # reserved for the marker that says that the file is full
SUFFIX: Final = ".cast"
NAME: Final = re.compile(rf"\d{{8}}T\d{{6}}Z-[\w-]+{re.escape(SUFFIX)}")
# The end of the file name if an agent created the terminal.
AGENT_SUFFIX: Final = "-agent.cast"


class CastFile:
    """The file of one recording. Its methods run in threads, since they may wait for the disk."""

    # States: *new*; *open*, from `open` or `resume` on; *closed*, once `close` was called, the file
    # is full, or a method has raised `OSError`. Only an open file is written.

    # Held while old files are counted and a new one is created.
    _creating: Final = threading.Lock()

    def __init__(self, path: str, settings: Settings) -> None:
        self.path: Final = path
        self._settings: Final = settings
        self._encoder: Final = Encoder()
        self._lock: Final = threading.Lock()
        #: The events to be written, in order. Each call of `write` writes all of them.
        self.events: Final[deque[RawEvent]] = deque()
        #: Whether the next write, or the one in progress, closes the file.
        self.closing = False
        #: Whether the file has been created.
        self.exists = False
        self._fd = -1
        #: The number of bytes written.
        self.size = 0
        #: How many bytes of output were taken from `events`, but are not written until the rest of
        #: their character arrives.
        self.buffered_bytes = 0

    def open(self, first: bytes) -> None:
        """Create the file, and remove the oldest ones beyond `record_files`. Raises `OSError`."""
        with self._lock, self._creating:
            if self.closing:
                return
            directory = _open_directory(os.path.dirname(self.path))
            try:
                is_agents = self.path.endswith(AGENT_SUFFIX)
                _remove_old(directory, self._settings.record_files - 1, is_agents=is_agents)
                flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
                self._fd = os.open(os.path.basename(self.path), flags, 0o600, dir_fd=directory)
                self.exists = True
            finally:
                os.close(directory)
            with contextlib.suppress(OSError):  # a file system without locks; see `_remove_old`
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._append(first)

    def resume(self, size: int) -> None:
        """Open the file of the previous worker, cut to `size` bytes. Raises `OSError`."""
        with self._lock:
            if self.closing:
                return
            flags = os.O_WRONLY | os.O_APPEND | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            self._fd = os.open(self.path, flags)
            self.exists = True
            found = os.fstat(self._fd)
            if not stat.S_ISREG(found.st_mode) or found.st_size < size:
                self._close()
                raise FileNotFoundError(f"{self.path} is not the recording that it was")
            with contextlib.suppress(OSError):
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(self._fd, size)
            self.size = size

    def write(self) -> bool:
        """Write the pending events; return whether the file is still open. Raises `OSError`."""
        with self._lock:
            if self._fd < 0:
                return False
            lines: list[bytes] = []
            room = self._settings.record_bytes - _FULL_MARKER_BYTES - self.size
            while self.events and room >= 0:
                event = self.events.popleft()
                lines.append(self._encoder.encode(event))
                room -= len(lines[-1])
                if room < 0:
                    last = RawEvent(event.time, MARKER, b"the recording ends here: it is full")
                    lines[-1] = self._encoder.encode(last)
            if self.closing:
                lines.append(self._encoder.finish())
            self._append(b"".join(lines))
            self.buffered_bytes = self._encoder.incomplete_bytes
            if room < 0 or self.closing:
                self._close()
            return self._fd >= 0

    def close(self) -> None:
        self.closing = True
        self.write()

    def _append(self, data: bytes) -> None:
        written = 0
        try:
            while written < len(data):
                written += os.write(self._fd, data[written:])
        except OSError:
            # Remove the incomplete line.
            with contextlib.suppress(OSError):
                os.ftruncate(self._fd, self.size + data.rfind(b"\n", 0, written) + 1)
            self._close()
            raise
        self.size += written

    def _close(self) -> None:
        fd, self._fd = self._fd, -1
        os.close(fd)


def path_of(terminal: Terminal, settings: Settings, *, is_agents: bool) -> str:
    when = time.strftime("%Y%m%dT%H%M%SZ", time.gmtime(terminal.started))
    directory = settings.record_dir or default_record_dir()
    return os.path.join(directory, f"{when}-{terminal.id}{AGENT_SUFFIX if is_agents else SUFFIX}")


def _open_directory(path: str) -> int:
    """Open the directory at `path`, which is created if missing; return the descriptor.

    Raises `OSError` if other users could write to the directory.
    """
    os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
    with contextlib.suppress(FileExistsError):
        os.mkdir(path, 0o700)
    directory = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    found = os.fstat(directory)
    if found.st_uid != os.geteuid() or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        os.close(directory)
        raise PermissionError(
            f"{path} belongs to another user, or others can write to it (uid {found.st_uid}, mode "
            f"{stat.S_IMODE(found.st_mode):o}): run chmod 700 {path}, or set record_dir"
        )
    return directory


def _remove_old(directory: int, number: int, *, is_agents: bool) -> None:
    """Remove the oldest recordings of one kind, except those that are being written."""
    found = filter(NAME.fullmatch, os.listdir(directory))
    names = sorted(name for name in found if name.endswith(AGENT_SUFFIX) == is_agents)
    surplus = len(names) - number
    for name in names:
        if surplus <= 0:
            return
        with contextlib.suppress(OSError):
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            file = os.open(name, flags, dir_fd=directory)
            try:
                if not _is_locked(file):
                    os.unlink(name, dir_fd=directory)
                    surplus -= 1
            finally:
                os.close(file)


def _is_locked(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError as error:  # a file system without locks raises another error
        return isinstance(error, BlockingIOError)
    return False
