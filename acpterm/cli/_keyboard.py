"""Lets the user quit a running command with the key q; keys are read unbuffered, without echo."""

import contextlib
import os
import termios
import tty
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

import trio

_QUIT_KEYS: Final = b"qQ"


async def until_quit(work: Callable[[], Awaitable[object]]) -> None:
    """Run `work`; cancel it when q is typed. Must be used within `quiet_keys`."""
    async with trio.open_nursery() as nursery:

        async def cancel_on_quit() -> None:
            await _wait_quit_key()
            nursery.cancel_scope.cancel()

        nursery.start_soon(cancel_on_quit)
        await work()
        nursery.cancel_scope.cancel()


async def _wait_quit_key() -> None:
    """Wait until q is typed; wait forever if stdin is not a terminal or has ended."""
    while os.isatty(0):
        await trio.lowlevel.wait_readable(0)
        keys = os.read(0, 1024)
        if not keys:
            break
        if any(key in _QUIT_KEYS for key in keys):
            return
    await trio.sleep_forever()


@contextlib.contextmanager
def quiet_keys() -> Iterator[None]:
    """Put stdin into cbreak mode without echo, if it is a terminal; Ctrl-C still interrupts."""
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
    """Return whether this process should read keys.

    It should if stdout is a terminal, and if keys typed at the terminal on stdin are for this
    process: it is in the terminal's foreground process group.
    """
    try:
        return os.isatty(1) and os.tcgetpgrp(0) == os.getpgrp()
    except OSError:
        return False
