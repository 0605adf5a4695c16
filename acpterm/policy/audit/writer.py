"""The file of the audit log: appends whole lines, and rotates by size.

Rules:

- The directory has the mode 0700 and the files 0600; both belong to this user and are no links.
- Several processes may write at once. Each opens the directory for every batch, locks it (flock),
  and opens, checks, rotates and appends under the lock. So a process never writes to a file that
  another one has rotated, and a directory that was removed is created again.
- A file has whole lines. If a batch can be written in part only, the incomplete line is removed,
  and is written again later. If a process died in the middle of a line, the next one to write
  starts with a newline.
- There are at most `files` files of at most `file_bytes` bytes: `audit.jsonl`, then `audit.jsonl.1`
  and so on, from the newest to the oldest.

A file system without locks works, but two processes that rotate at once may lose lines there.
"""

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
from typing import Final

from acpterm.policy.audit.entry import FILE_NAME, OLD_NAME, old_name

_LOCK_TIMEOUT_S: Final = 2.0
_LOCK_RETRY_S: Final = 0.002


class Batch:
    """Lines to be appended, and how much of them has been."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines: Final = len(lines)
        self.data: Final = b"".join(lines)
        self.written = 0
        """The number of bytes in the file: those of whole lines only."""


class AuditWriter:
    """The file of the audit log in `directory`. Its method runs in threads."""

    def __init__(self, directory: str, *, file_bytes: int, files: int) -> None:
        self.path: Final = os.path.join(directory, FILE_NAME)
        self.file_bytes: Final = file_bytes
        self._directory: Final = directory
        self._files: Final = files
        self._lock: Final = threading.Lock()

    def append(self, batch: Batch) -> None:
        """Append what is not written yet of a batch. Raises `OSError`.

        After an error, `batch` can be appended again, also by another thread.
        """
        with self._lock:
            if batch.written == len(batch.data):
                return
            directory = _open_directory(self._directory)
            try:
                is_locked = _lock(directory, self._directory)
                try:
                    self._append(directory, batch)
                finally:
                    if is_locked:  # a process that is being forked may have the descriptor, too
                        fcntl.flock(directory, fcntl.LOCK_UN)
            finally:
                os.close(directory)

    def _append(self, directory: int, batch: Batch) -> None:
        fd, size = self._open(directory)
        try:
            if size and size + len(batch.data) - batch.written > self.file_bytes:
                _rotate(directory, self._files)
                os.close(fd)
                fd, size = -1, 0
                fd, size = self._open(directory)
            start = b""
            if size and os.pread(fd, 1, size - 1) != b"\n":
                start = b"\n"  # end the line that a process could not complete
            _write_lines(fd, size, start, batch)
        finally:
            if fd >= 0:
                os.close(fd)

    def _open(self, directory: int) -> tuple[int, int]:
        """Open the file, which is created if missing; return its descriptor and its size."""
        flags = os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        fd = os.open(FILE_NAME, flags, 0o600, dir_fd=directory)
        try:
            found = os.fstat(fd)
            if not stat.S_ISREG(found.st_mode) or found.st_uid != os.geteuid():
                raise PermissionError(
                    errno.EPERM, f"it is no file of this user (uid {found.st_uid})", self.path
                )
            if stat.S_IMODE(found.st_mode) != 0o600:
                os.fchmod(fd, 0o600)
        except OSError:
            os.close(fd)
            raise
        return fd, found.st_size


def _open_directory(path: str) -> int:
    """Open the directory at `path`, which is created if missing; return its descriptor.

    Raises `OSError`, also if it belongs to another user.
    """
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        directory = os.open(path, flags)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
        with contextlib.suppress(FileExistsError):
            os.mkdir(path, 0o700)
        directory = os.open(path, flags)
    try:
        found = os.fstat(directory)
        if found.st_uid != os.geteuid():
            raise PermissionError(
                errno.EPERM, f"the directory belongs to another user (uid {found.st_uid})", path
            )
        if stat.S_IMODE(found.st_mode) & 0o077:
            os.fchmod(directory, 0o700)
    except OSError:
        os.close(directory)
        raise
    return directory


def _lock(directory: int, path: str) -> bool:
    """Lock the directory; return whether the file system has locks. Raises `TimeoutError`."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # Not a blocking call: the process that holds the lock may have been stopped.
            if time.monotonic() > deadline:
                raise TimeoutError(
                    errno.ETIMEDOUT, "another process holds the lock", path
                ) from None
            time.sleep(_LOCK_RETRY_S)
        except OSError:
            return False
        else:
            return True


def _rotate(directory: int, files: int) -> None:
    """Rename the files, so that the current one becomes `.1`; remove those that are too many."""
    numbers = [
        int(match[1]) for name in os.listdir(directory) if (match := OLD_NAME.fullmatch(name))
    ]
    for number in sorted([0, *numbers], reverse=True):
        name = old_name(number)
        if number + 1 >= files:
            os.unlink(name, dir_fd=directory)
        else:
            os.rename(name, old_name(number + 1), src_dir_fd=directory, dst_dir_fd=directory)


def _write_lines(fd: int, size: int, start: bytes, batch: Batch) -> None:
    """Append `start` and the rest of a batch to a file of `size` bytes. Raises `OSError`.

    The file is locked. After an error the file ends with the last line that was written as a whole.
    """
    data = start + batch.data[batch.written :]
    written = 0
    try:
        while written < len(data):
            written += os.write(fd, data[written:])
    except OSError:
        whole = data.rfind(b"\n", 0, written) + 1
        batch.written += max(0, whole - len(start))
        if written > whole:
            with contextlib.suppress(OSError):
                os.ftruncate(fd, size + whole)
        raise
    batch.written = len(batch.data)
