"""Forward this process's stdin to a program through a named pipe, up to its end, as ssh does.

The program opens the named pipe as its standard input. It sees the same as in a pipeline: no
terminal, every byte unchanged, and the end of the input.
"""

import contextlib
import os
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from typing import Final

import trio

from acpterm.client.user.output.print import named
from acpterm.runtime.stdio import StdioStream, write_all
from acpterm.runtime.threads import run_blocking

_STDIN: Final = 0
_CHUNK_BYTES: Final = 64 * 1024


def is_passed_on(*, even_terminal: bool) -> bool:
    """Return whether to forward stdin. A closed stdin is forwarded as an empty one."""
    return even_terminal or sys.stdin is None or not os.isatty(_STDIN)


@contextlib.contextmanager
def named_pipe(directory: str) -> Iterator[str]:
    """Create a private named pipe, in `directory` if that is writable; remove it afterwards."""
    # `directory` holds the daemon's socket, so the daemon can access it even from a container.
    parent = directory if os.access(directory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stdin-", dir=parent) as temporary:
        path = os.path.join(temporary, "pipe")
        os.mkfifo(path, 0o600)
        yield path


async def pass_stdin(path: str) -> None:
    """Forward stdin to the named pipe, until stdin ends or the pipe has no reader."""
    # Opening blocks until the program opens its end. When cancelled, the thread is abandoned.
    opening = partial(os.open, path, os.O_WRONLY | os.O_CLOEXEC)
    pipe = await run_blocking(opening, abandon_on_cancel=True)
    try:
        if sys.stdin is None:
            return
        stdin = StdioStream(_STDIN, -1)
        with contextlib.suppress(BrokenPipeError), named("stdin"):
            while data := await _read(stdin):
                await write_all(pipe, data)
    finally:
        os.close(pipe)


async def _read(stdin: StdioStream) -> bytes:
    """Wait for the next bytes; a stdin that cannot be read, such as a directory, is at its end."""
    try:
        return await stdin.receive_some(_CHUNK_BYTES)
    except trio.BrokenResourceError:
        return b""
