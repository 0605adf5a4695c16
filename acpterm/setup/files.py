"""Reads files of other programs, and replaces each of them in one step. All raise `SetupError`.

A new file has the same owner, mode and extended attributes; a symbolic link stays, and its target
is replaced. A file that has changed since it was read is not replaced: its program may have written
it meanwhile.
"""

import os
import secrets
import shutil
import stat
from collections.abc import Sequence
from contextlib import suppress


class SetupError(Exception):
    """Settings cannot be changed; the message says which, why, and what to do."""


def read(path: str) -> bytes | None:
    """Return the contents of the regular file at `path`, or of a link's target; None if absent."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise SetupError(f"{path}: is not a regular file")
        # Since the check, a FIFO may have replaced the file: opening it must not block either.
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
    with suppress(FileNotFoundError):
        if not os.stat(path).st_mode & 0o222 or not os.access(path, os.W_OK):
            raise SetupError(
                f"{path}: is read-only. If a program manages it, add the entry there (--dry-run "
                f"shows it); else make it writable: chmod u+w {path}"
            )


def missing_directories(path: str) -> list[str]:
    """Return the missing directories that `replace` creates for the file, the outermost first."""
    missing: list[str] = []
    directory = os.path.dirname(os.path.realpath(path))
    while not os.path.isdir(directory):
        missing.insert(0, directory)
        directory = os.path.dirname(directory)
    return missing


def replace(path: str, before: bytes | None, after: bytes, mode: int) -> None:
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
    """Delete the file at `path`; if that is a symbolic link, delete the link and its target."""
    check_writable(path)
    _check_unchanged(path, before)
    # Links go before what they point to, so that a failure leaves no dangling link.
    paths = [path]
    while os.path.islink(paths[-1]):
        paths.append(os.path.join(os.path.dirname(paths[-1]), os.readlink(paths[-1])))
    try:
        for each in paths:
            os.unlink(each)
    except OSError as error:
        raise SetupError(f"{error.filename or path}: {error.strerror}") from None


def remove_directories(paths: Sequence[str]) -> None:
    """Remove those of the directories `paths` that are empty, the last one first."""
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
    try:
        found = os.stat(path)
    except FileNotFoundError:
        os.fchmod(fd, mode)
        return
    own = os.fstat(fd)
    if (own.st_uid, own.st_gid) != (found.st_uid, found.st_gid):
        # With another owner, the program that the file belongs to might be unable to read it.
        os.fchown(fd, found.st_uid, found.st_gid)
    times = (own.st_atime_ns, own.st_mtime_ns)
    shutil.copystat(path, temporary)
    # Restore the times, which `copystat` has copied too: programs notice a change by a new time.
    os.utime(fd, ns=times)
