"""Files that are written whole or not at all, for this user alone."""

import os
import secrets
import shutil
import stat
import sys
from contextlib import suppress
from typing import BinaryIO


def write_to(path: str, made: BinaryIO) -> None:
    """Write all that is in `made` to a file that takes the place of `path`. Raises `OSError`.

    `-` is stdout, where nobody who reads is no error. What is there and no regular file, such as a
    pipe, is written to.
    """
    made.seek(0)
    if path == "-":
        _to_stdout(made)
        return
    # A link stays one: what it leads to is replaced.
    path = os.path.realpath(path)
    if os.path.exists(path) and not stat.S_ISREG(os.stat(path).st_mode):
        with open(path, "wb") as file:
            shutil.copyfileobj(made, file)
        return
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
    try:
        shutil.copyfileobj(made, sys.stdout.buffer)
        sys.stdout.buffer.flush()
    except BrokenPipeError:
        # What is left in the buffer would be an error once more at the end.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
