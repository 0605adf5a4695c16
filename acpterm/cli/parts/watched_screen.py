"""`acpterm ls --watch` on a terminal: the whole screen, drawn again until Ctrl-C or q."""

import contextlib
import os
import signal
import termios
import tty
from collections.abc import Callable, Iterator
from typing import Final

import trio

from acpterm.acp.person import TerminalInfo
from acpterm.cli.parts.tables import Screen
from acpterm.client.person.front import Front
from acpterm.client.person.listing import Row
from acpterm.client.person.watched import look_again
from acpterm.client.person.watching import until_ended

# Seconds after which ages are another second's.
_SECOND: Final = 1.0
_QUIT: Final = b"qQ"


async def watch_screen(
    front: Front, rows: Callable[[list[TerminalInfo]], list[Row]], *, everything: bool
) -> int:
    """Show the terminals until Ctrl-C, q, or another signal: the exit status."""
    changed = trio.Event()

    def again() -> trio.Event:
        nonlocal changed
        changed = trio.Event()
        return changed

    async def watch_size() -> None:
        with trio.open_signal_receiver(signal.SIGWINCH) as signals:
            async for _ in signals:
                changed.set()

    async def show(found: list[TerminalInfo]) -> None:
        screen.draw(rows(found))
        await trio.lowlevel.checkpoint()

    async def look() -> None:
        await look_again(front, show, everything=everything, every=_SECOND, again=again)

    async def work() -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(watch_size)
            nursery.start_soon(look)
            await _until_quit()
            nursery.cancel_scope.cancel()

    with _quiet_keys(), Screen() as screen:
        return await until_ended(work)


async def _until_quit() -> None:
    """Wait for a q; for ever, if there is no keyboard."""
    while os.isatty(0):
        await trio.lowlevel.wait_readable(0)
        keys = os.read(0, 1024)
        if not keys:
            break
        if any(key in _QUIT for key in keys):
            return
    await trio.sleep_forever()


@contextlib.contextmanager
def _quiet_keys() -> Iterator[None]:
    """Have keys come as they are typed and not be shown; Ctrl-C stays what it is."""
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
