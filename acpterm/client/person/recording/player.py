"""A recording, played in the person's own window, which is afterwards as it was.

What is played are a program's own bytes. Among them may be questions that the window answers: so
what is typed meanwhile, by the window or the person, is not shown, and is dropped at the end.
"""

import contextlib
import os
import termios
from collections.abc import Iterator

import trio

from acpterm.client import replay
from acpterm.client.person.reading.stdout import note, put, while_read
from acpterm.client.replay import Cast
from acpterm.host import stdio
from acpterm.host.ending import minded


async def play_here(cast: Cast, *, speed: float, idle_limit: float) -> int | None:
    """Play a cast in the window that stdout is: the signal that ended it, None if none did."""
    size = os.get_terminal_size(1)
    # A window that does not know its size has none.
    if 0 < size.columns < cast.cols or 0 < size.lines < cast.rows:
        await note(
            f"acpterm: the recording is {cast.cols} by {cast.rows}, this window "
            f"{size.columns} by {size.lines}: it will not look right"
        )
    ended: list[int] = []
    with trio.open_signal_receiver(*minded()) as signals, _unseen():
        try:
            async with while_read(), trio.open_nursery() as nursery:

                async def watch() -> None:
                    async for number in signals:
                        ended.append(number)
                        nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                await replay.play(cast, put, speed=speed, idle_limit=idle_limit)
                nursery.cancel_scope.cancel()
        finally:
            # A window that is gone takes nothing any more, and one that is stopped not yet.
            with trio.move_on_after(1, shield=True), contextlib.suppress(OSError):
                await stdio.write_all(1, replay.LEAVE + b"\r\n")
    return ended[0] if ended else None


async def print_all(cast: Cast) -> None:
    """Write all that a cast shows, at once: for where there is no window."""
    async with while_read():
        for event in cast.events:
            if event.code == replay.OUTPUT:
                await put(event.data.encode(errors="replace"))


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Have nothing shown of what is typed, and drop it at the end; Ctrl-C is as ever."""
    try:
        before = termios.tcgetattr(0)
    except termios.error:
        yield
        return
    during = [*before]
    during[3] &= ~(termios.ECHO | termios.ICANON)
    termios.tcsetattr(0, termios.TCSANOW, during)
    try:
        yield
    finally:
        with contextlib.suppress(termios.error):
            termios.tcsetattr(0, termios.TCSAFLUSH, before)
