"""A recording, played in the person's own window, which is afterwards as it was.

What is typed meanwhile steers the playback: it is not shown, and what is left of it at the end is
dropped.
"""

import contextlib
import os
import re
import termios
from collections.abc import Callable, Iterator
from typing import Final

import trio

from acpterm.client import replay
from acpterm.client.playback import Key, Playback
from acpterm.client.replay import Cast
from acpterm.client.user.output.stdout import note, put, while_read
from acpterm.runtime import stdio
from acpterm.runtime.shutdown_signals import shutdown_signals
from acpterm.terminal.vt.paint import LEAVE

_KEYS_MAX: Final = 64
_ARROWS: Final = {b"A": Key.FASTER, b"B": Key.SLOWER, b"C": Key.FORWARD, b"D": Key.BACK}
_CHARACTERS: Final = {b" ": Key.PAUSE, b".": Key.STEP, b"q": Key.QUIT}
# An arrow, a key as kitty's protocol reports it, another sequence, or a character.
_TYPED: Final = re.compile(
    rb"\x1b(?:\[[0-9;:]*|O)(?P<arrow>[ABCD])|\x1b\[(?P<code>\d{1,3})(?:[;:][0-9;:]*)?u"
    rb"|\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)|.",
    re.DOTALL,
)


async def play_here(playback: Playback, has_keyboard: Callable[[], bool]) -> int | None:
    """Play a cast in the window that stdout is: the signal that ended it, None if none did.

    `playback` has to write with `put`. `has_keyboard`: whether what is typed is for this command.
    """
    cast, size = playback.cast, os.get_terminal_size(1)
    # A window that does not know its size has none.
    if 0 < size.columns < cast.cols or 0 < size.lines < cast.rows:
        await note(
            f"acpterm: the recording is {cast.cols} by {cast.rows}, this window "
            f"{size.columns} by {size.lines}: it will not look right"
        )
    ended: list[int] = []
    with trio.open_signal_receiver(*shutdown_signals()) as signals, _echo_disabled():
        try:
            async with while_read(), trio.open_nursery() as nursery:

                async def watch() -> None:
                    async for number in signals:
                        ended.append(number)
                        nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                send, keys = trio.open_memory_channel[Key](_KEYS_MAX)
                nursery.start_soon(_read_keys, send, has_keyboard)
                await playback.run(keys)
                nursery.cancel_scope.cancel()
        finally:
            # A window that is gone takes nothing any more, and one that is stopped not yet.
            with trio.move_on_after(1, shield=True), contextlib.suppress(OSError):
                await stdio.write_all(1, LEAVE + b"\r\n")
    return ended[0] if ended else None


async def _read_keys(send: trio.MemorySendChannel[Key], has_keyboard: Callable[[], bool]) -> None:
    """Pass on the keys that steer, as long as there is a keyboard."""
    async with send:
        while has_keyboard():
            await trio.lowlevel.wait_readable(0)
            try:
                typed = os.read(0, 1024)
            except OSError:
                break
            if not typed:
                break
            for key in keys_in(typed):
                # More than that nobody has meant.
                with contextlib.suppress(trio.WouldBlock):
                    send.send_nowait(key)
    # The playback goes on without keys.


def keys_in(typed: bytes) -> Iterator[Key]:
    """Return what was typed that steers; a program may have set how keys are reported."""
    for found in _TYPED.finditer(typed):
        if found["arrow"]:
            yield _ARROWS[found["arrow"]]
            continue
        character = bytes([int(found["code"]) & 127]) if found["code"] else found[0]
        if key := _CHARACTERS.get(character.lower()):
            yield key


async def print_all(cast: Cast) -> None:
    """Write all that a cast shows, at once: for where there is no window."""
    async with while_read():
        for event in cast.events:
            if event.code == replay.OUTPUT:
                await put(event.data.encode(errors="replace"))


@contextlib.contextmanager
def _echo_disabled() -> Iterator[None]:
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
