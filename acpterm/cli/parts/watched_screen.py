"""`acpterm ls --watch` on a terminal: the whole screen, drawn again until Ctrl-C or q."""

import signal
from collections.abc import Callable
from typing import Final

import trio

from acpterm.acp.person import TerminalInfo
from acpterm.cli.parts.quitting import quiet_keys, until_quit
from acpterm.cli.parts.tables import Screen
from acpterm.client.person.front import Front
from acpterm.client.person.listing import Row
from acpterm.client.person.watched import look_again
from acpterm.client.person.watching import until_ended

# Seconds after which ages are another second's.
_SECOND: Final = 1.0


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
            await until_quit(look)
            nursery.cancel_scope.cancel()

    with quiet_keys(), Screen() as screen:
        return await until_ended(work)
