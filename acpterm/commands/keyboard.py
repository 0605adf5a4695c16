"""The keyboard of a command that prints output: reads keys unbuffered and without echo."""

import contextlib
import os
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio

_READ_BYTES_MAX: Final = 1024


def has_keyboard() -> bool:
    """Return whether stdout is a terminal, and this process is in the foreground on stdin."""
    try:
        return os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False


@contextlib.contextmanager
def quiet_keys() -> Iterator[None]:
    """Turn off echo and line buffering of keys during the block, if `has_keyboard()`.

    Ctrl-C still interrupts. The mode is changed at once, even while Ctrl-S stops the output.
    """
    if not has_keyboard():
        yield
        return
    original = termios.tcgetattr(0)
    tty.setcbreak(0, termios.TCSANOW)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSANOW, original)


async def read_keys() -> bytes:
    """Wait for keys and return their bytes; return empty bytes if no more can be read."""
    if not has_keyboard():
        return b""
    await trio.lowlevel.wait_readable(0)
    try:
        return os.read(0, _READ_BYTES_MAX)
    except OSError:
        return b""


async def until_quit(work: Callable[[], Awaitable[object]]) -> None:
    """Run `work` until it returns; cancel it when q is typed. Call this within `quiet_keys`."""
    async with trio.open_nursery() as nursery:

        async def cancel_on_quit() -> None:
            while keys := await read_keys():
                if b"q" in keys.lower():
                    nursery.cancel_scope.cancel()

        nursery.start_soon(cancel_on_quit)
        await work()
        nursery.cancel_scope.cancel()
