"""Files that are written whole or not at all, for this user alone."""

import os
import secrets
import shutil
import stat
from contextlib import suppress
from typing import BinaryIO, Final

from acpterm.client.user.output.print import named
from acpterm.runtime.blocking_io import write_fully

# Bytes that are written at once.
_PIECE: Final = 64 * 1024


def write_to(path: str, made: BinaryIO) -> None:
    """Write all that is in `made` to a file that takes the place of `path`. Raises `OSError`.

    `-` is stdout. What is there and no regular file, such as a pipe or a device, is written to as
    it is. Where that is a pipe, or stdout, nobody who reads is no error.
    """
    made.seek(0)
    if path == "-":
        _to_stdout(made)
        return
    # By the name that was given: /dev/stdout, or what a shell makes of >(…), is a link to a pipe
    # that has no name.
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with suppress(BrokenPipeError), open(path, "wb") as file:
            shutil.copyfileobj(made, file)
        return
    # A link stays one: what it leads to is replaced.
    path = os.path.realpath(path)
    temporary = f"{path}.{secrets.token_hex(4)}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        with os.fdopen(fd, "wb") as file:
            shutil.copyfileobj(made, file)
        os.replace(temporary, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary)
        raise


def _to_stdout(made: BinaryIO) -> None:
    with suppress(BrokenPipeError), named("stdout"):
        while data := made.read(_PIECE):
            write_fully(1, data)
