"""Writes the audit log: appends whole lines to the current file, and rotates the files by size.

Rules:

- The directory has the mode 0700 and the files 0600. They belong to this user, and none of them is
  a symbolic link.
- Several processes may write at once. For every batch of lines, a process opens the directory,
  locks it (flock), and opens, checks, rotates and appends under the lock. So a process never writes
  to a file that another process has rotated, and a directory that was removed is created again.
- A file has whole lines. If only a part of a batch can be written, the incomplete line is removed
  from the file, and written again later. If a process died in the middle of a line, the next
  process that writes starts with a newline.
- There are at most `files` files: `audit.jsonl`, then `audit.jsonl.1` and so on, from the newest to
  the oldest. A file grows beyond `file_bytes` bytes only if its first batch is larger.

The log also works on a file system without locks, but if two processes rotate at once there, lines
may be lost.
"""

import contextlib
import errno
import fcntl
import os
import stat
import threading
import time
from typing import Final

from acpterm.audit.entry import FILE_NAME, OLD_NAME, old_name

_LOCK_TIMEOUT_S: Final = 2.0
_LOCK_RETRY_S: Final = 0.002


class Batch:
    """Lines to append to the log, and how many of their bytes are already written."""

    def __init__(self, lines: list[bytes]) -> None:
        self.lines: Final = len(lines)
        self.data: Final = b"".join(lines)
        self.written = 0
        """The number of bytes of `data` in the file; an incomplete line does not count."""


class AuditWriter:
    """Writes the audit log in `directory`, in at most `files` files. `append` blocks."""

    def __init__(self, directory: str, *, file_bytes: int, files: int) -> None:
        self.path: Final = os.path.join(directory, FILE_NAME)
        self.file_bytes: Final = file_bytes
        self._directory: Final = directory
        self._files: Final = files
        self._lock: Final = threading.Lock()

    def append(self, batch: Batch) -> None:
        """Append the unwritten part of a batch. Raises `OSError`, `TimeoutError` (the lock)."""
        # After an error, call this again with the same batch: no line is written twice.
        with self._lock:
            if batch.written == len(batch.data):
                return
            directory = _open_directory(self._directory)
            try:
                is_locked = _lock(directory, self._directory)
                try:
                    self._append(directory, batch)
                finally:
                    # Closing is not enough: a process that was just forked may have the descriptor.
                    if is_locked:
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
                start = b"\n"  # a process died in the middle of the last line
            _write_lines(fd, size, start, batch)
        finally:
            if fd >= 0:
                os.close(fd)

    def _open(self, directory: int) -> tuple[int, int]:
        """Open or create the current file; return its descriptor and size. Raises `OSError`."""
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
    """Open or create the directory. Raises `OSError`, also if it belongs to another user."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        directory = os.open(path, flags)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path) or ".", 0o700, exist_ok=True)
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
    """Lock the directory; False if its file system has no locks. Raises `TimeoutError`."""
    deadline = time.monotonic() + _LOCK_TIMEOUT_S
    while True:
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            # A blocking call could wait without end: the process with the lock may be stopped.
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
    """Increment the number of each file; remove those from number `files` on."""
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
    """Append `start` and the unwritten rest of a batch; after an error, cut after a whole line."""
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
