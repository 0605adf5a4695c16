"""Writes an exported file atomically, accessible only to this user."""

import os
import secrets
import shutil
import stat
from contextlib import suppress
from typing import BinaryIO, Final

from acpterm.commands.output.blocking_stdout import named
from acpterm.runtime.blocking_io import write_fully

_CHUNK_BYTES: Final = 64 * 1024


def write_to(path: str, source: BinaryIO) -> None:
    """Replace the file at `path` by the content of `source`, atomically."""
    source.seek(0)
    if path == "-":
        _write_to_stdout(source)
        return
    # Don't resolve links here: /dev/stdout, or a shell's >(…), may link to a pipe without a name.
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with suppress(BrokenPipeError), open(path, "wb") as file:
            shutil.copyfileobj(source, file)
        return
    # Replace the target of a symbolic link, not the link.
    path = os.path.realpath(path)
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            shutil.copyfileobj(source, file)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _write_to_stdout(source: BinaryIO) -> None:
    with suppress(BrokenPipeError), named("stdout"):
        while data := source.read(_CHUNK_BYTES):
            write_fully(1, data)
