"""Ends a command that is watched when q is typed: keys are read at once, and not echoed."""

import contextlib
import os
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio

_QUIT: Final = b"qQ"


async def until_quit(work: Callable[[], Awaitable[object]]) -> None:
    """Run `work` until it is done or a q is typed; to be used within `quiet_keys`."""
    async with trio.open_nursery() as nursery:

        async def watch() -> None:
            await _quit()
            nursery.cancel_scope.cancel()

        nursery.start_soon(watch)
        await work()
        nursery.cancel_scope.cancel()


async def _quit() -> None:
    """Wait for a q; for ever if there is no keyboard."""
    while os.isatty(0):
        await trio.lowlevel.wait_readable(0)
        keys = os.read(0, 1024)
        if not keys:
            break
        if any(key in _QUIT for key in keys):
            return
    await trio.sleep_forever()


@contextlib.contextmanager
def quiet_keys() -> Iterator[None]:
    """Read keys as they are typed, without echo; Ctrl-C still interrupts."""
    if not os.isatty(0):
        yield
        return
    before = termios.tcgetattr(0)
    tty.setcbreak(0)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSADRAIN, before)


def has_keyboard() -> bool:
    """Return whether stdout is a terminal and this is its foreground process group."""
    try:
        return os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
