"""Finds and opens the files of the audit log, whose names change when they are rotated."""

import os
import stat
from typing import Final

from acpterm.policy.audit.entry import OLD_NAME, old_name

CHUNK_BYTES: Final = 256 * 1024
"""How much of a file is read at once."""
LINE_BYTES_MAX: Final = 4 * 1024 * 1024
"""A longer line is no entry. The texts of an entry are limited, and escapes make them longer."""


def find_files(directory: str) -> list[tuple[str, os.stat_result]]:
    """Return names and statuses of the log's files, the oldest first; empty without a directory.

    Only regular files count. Raises `OSError`.
    """
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    numbers = sorted(int(match[1]) for name in names if (match := OLD_NAME.fullmatch(name)))
    ordered = [old_name(number) for number in [*reversed(numbers), 0]]
    return [(name, status) for name in ordered if (status := status_of(directory, name))]


def status_of(directory: str, name: str) -> os.stat_result | None:
    """Return the status of a file; None if it is missing or is no regular file."""
    try:
        status = os.lstat(os.path.join(directory, name))
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def open_file(directory: str, name: str, status: os.stat_result) -> int | None:
    """Open a file that `find_files` has returned; return its descriptor.

    Return None if the file does not have this name any more: then find the files again. Raises
    `OSError`.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(os.path.join(directory, name), flags)
    except FileNotFoundError:
        return None
    if os.path.samestat(os.fstat(fd), status):
        return fd
    os.close(fd)
    return None
