"""Reads files of other programs, and replaces them as a whole.

Stateless. A file is replaced in one step by another with the same owner, mode and extended
attributes; a symbolic link stays, and its target is replaced. A file that has changed since it was
read is left as it is: the program that it belongs to may have written it meanwhile.
"""

import os
import secrets
import shutil
import stat
from contextlib import suppress

from acpterm.client.setup.errors import SetupError


def read(path: str) -> bytes | None:
    """Return the contents of the file, or None if it does not exist. Raises `SetupError`.

    It may be a symbolic link to a regular file. Nothing else is opened for longer than it takes to
    see what it is: the end of a FIFO might never come.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SetupError(f"{path}: is not a regular file")
        # What was put in its place since must not block either.
        with open(path, "rb", opener=_open_without_waiting) as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise SetupError(f"{path}: is not a regular file")
            return file.read()
    except FileNotFoundError:
        if os.path.islink(path):
            target = os.path.realpath(path)
            raise SetupError(
                f"{path}: is a symbolic link to {target}, which does not exist"
            ) from None
        return None
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from None


def _open_without_waiting(path: str, flags: int) -> int:
    return os.open(path, flags | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)


def check_writable(path: str) -> None:
    """Raise `SetupError` if the file is read-only, as those that another program manages are."""
    with suppress(FileNotFoundError):
        if not os.stat(path).st_mode & 0o222 or not os.access(path, os.W_OK):
            raise SetupError(
                f"{path}: is read-only. If a program manages it, add the entry there (--dry-run "
                f"shows it); else make it writable: chmod u+w {path}"
            )


def missing_directories(path: str) -> list[str]:
    """Return the directories that `replace` creates for the file, the outermost first."""
    missing: list[str] = []
    directory = os.path.dirname(os.path.realpath(path))
    while not os.path.isdir(directory):
        missing.insert(0, directory)
        directory = os.path.dirname(directory)
    return missing


def replace(path: str, before: bytes | None, after: bytes, mode: int) -> None:
    """Replace the file's contents `before` by `after`, and create missing directories.

    A new file has the permission bits `mode`. Raises `SetupError` if the contents are no longer
    `before`, or the file cannot be written.
    """
    check_writable(path)
    path = os.path.realpath(path)
    created = missing_directories(path) if before is None else []
    try:
        for directory in created:
            os.mkdir(directory, 0o700)
        temporary = f"{path}.acpterm-{secrets.token_hex(4)}"
        fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        try:
            with os.fdopen(fd, "wb") as file:
                file.write(after)
                file.flush()
                _copy_attributes(path, file.fileno(), temporary, mode)
                os.fsync(file.fileno())
            _check_unchanged(path, before)
            os.replace(temporary, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(temporary)
            raise
    except OSError as error:
        remove_directories(created)
        raise SetupError(f"{error.filename or path}: {error.strerror}") from None
    except SetupError:
        remove_directories(created)
        raise


def delete(path: str, before: bytes | None) -> None:
    """Delete the file. Raises `SetupError` if its contents are no longer `before`."""
    check_writable(path)
    path = os.path.realpath(path)
    _check_unchanged(path, before)
    try:
        os.unlink(path)
    except OSError as error:
        raise SetupError(f"{path}: {error.strerror}") from None


def remove_directories(paths: list[str]) -> None:
    """Remove those of the directories that are empty. They are in the order of their creation."""
    for path in reversed(paths):
        with suppress(OSError):
            os.rmdir(path)


def _check_unchanged(path: str, before: bytes | None) -> None:
    if read(path) != before:
        raise SetupError(
            f"{path}: another program has changed it meanwhile. Nothing was changed: run the "
            "command again"
        )


def _copy_attributes(path: str, fd: int, temporary: str, mode: int) -> None:
    """Give the file the owner, the mode and the extended attributes of that at `path`.

    Raises `OSError` if it cannot have the same owner: another one could lock its reader out.
    """
    try:
        found = os.stat(path)
    except FileNotFoundError:
        os.fchmod(fd, mode)
        return
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
        os.fchown(fd, found.st_uid, found.st_gid)
    times = (own.st_atime_ns, own.st_mtime_ns)
    shutil.copystat(path, temporary)
    # Programs that watch the file compare its time.
    os.utime(fd, ns=times)
