"""Finds and opens the files of the audit log to read them, while other processes rotate them."""

import os
import stat
from typing import Final

from acpterm.audit.entry import OLD_NAME, old_name

CHUNK_BYTES: Final = 256 * 1024
"""The number of bytes that a reader reads at once."""
ENTRY_BYTES_MAX: Final = 4 * 1024 * 1024
"""The maximum length of an entry's line in bytes; a longer line is not an entry.

The texts of an entry are limited in characters (`log`), but escapes make them longer.
"""


def find_files(directory: str) -> list[tuple[str, os.stat_result]]:
    """Return the name and status of each regular file of the log, the oldest first."""
    try:
        names = os.listdir(directory)
    except FileNotFoundError:
        return []
    numbers = sorted(int(match[1]) for name in names if (match := OLD_NAME.fullmatch(name)))
    ordered = [old_name(number) for number in [*reversed(numbers), 0]]
    return [(name, status) for name in ordered if (status := status_of(directory, name))]


def status_of(directory: str, name: str) -> os.stat_result | None:
    """Return the status of a regular file; None if there is none. Raises `OSError`."""
    try:
        status = os.lstat(os.path.join(directory, name))
    except FileNotFoundError:
        return None
    return status if stat.S_ISREG(status.st_mode) else None


def open_file(directory: str, name: str, status: os.stat_result) -> int | None:
    """Open a file of `find_files`; None if it was renamed or removed since. Raises `OSError`."""
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        fd = os.open(os.path.join(directory, name), flags)
    except FileNotFoundError:
        return None
    if os.path.samestat(os.fstat(fd), status):
        return fd
    os.close(fd)
    return None
