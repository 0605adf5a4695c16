"""Standard input of this process, passed on to a program as a pipe: to its end, as ssh does it.

The pipe is a named one, which the program opens as its standard input. So the program sees what it
would see in a pipeline: no terminal, every byte, and the end of the input.
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
_CHUNK: Final = 64 * 1024


def is_passed_on(*, even_terminal: bool) -> bool:
    """Return whether stdin is to be passed on; a closed one is passed on as an empty one."""
    return even_terminal or sys.stdin is None or not os.isatty(_STDIN)


@contextlib.contextmanager
def named_pipe(directory: str) -> Iterator[str]:
    """Make a named pipe of this user's own, in `directory` if that can be written to."""
    # The directory of the daemon's socket: the daemon sees it, even from within a container.
    parent = directory if os.access(directory, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="stdin-", dir=parent) as found:
        path = os.path.join(found, "pipe")
        os.mkfifo(path, 0o600)
        yield path


async def pass_stdin(path: str) -> None:
    """Pass stdin on through the named pipe, until its end, or until nobody reads the pipe."""
    # Opening blocks until the program opens its end; the thread is left behind when cancelled.
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
    """Wait for the next bytes; what cannot be read, such as a directory, is the end."""
    try:
        return await stdin.receive_some(_CHUNK)
    except trio.BrokenResourceError:
        return b""
