"""Plays a recording in the window of this command, and restores the window afterwards.

Keys control the playback (`client.playback`). They are not echoed. Input that is still unread at
the end of the playback is dropped.
"""

import contextlib
import os
import re
import termios
from collections.abc import Iterator
from typing import Final

import trio

from acpterm.client import asciicast
from acpterm.client.asciicast import Cast
from acpterm.client.playback import Key, Playback
from acpterm.client.user.keyboard import has_keyboard, quiet_keys, read_keys
from acpterm.client.user.output.trio_stdout import note, put, while_stdout_is_read
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


async def play_here(playback: Playback) -> int | None:
    """Play a recording in this command's window, controlled by keys, until it ends or q is typed.

    Return the number of the shutdown signal that ended the playback early; None if no signal did.
    `playback` must write to stdout, which must be the window.
    """
    cast, size = playback.cast, os.get_terminal_size(1)
    # A window of unknown size reports 0.
    if 0 < size.columns < cast.cols or 0 < size.lines < cast.rows:
        await note(
            f"acpterm: the recording is {cast.cols} by {cast.rows}, this window "
            f"{size.columns} by {size.lines}: it will not look right"
        )
    ended: list[int] = []
    with trio.open_signal_receiver(*shutdown_signals()) as signals, quiet_keys():
        try:
            async with while_stdout_is_read(), trio.open_nursery() as nursery:

                async def watch() -> None:
                    async for number in signals:
                        ended.append(number)
                        nursery.cancel_scope.cancel()

                nursery.start_soon(watch)
                send, keys = trio.open_memory_channel[Key](_KEYS_MAX)
                nursery.start_soon(_send_keys, send)
                await playback.run(keys)
                nursery.cancel_scope.cancel()
        finally:
            # The window may be closed, or may have stopped its output (Ctrl-S).
            with trio.move_on_after(1, shield=True), contextlib.suppress(OSError):
                await stdio.write_all(1, LEAVE + b"\r\n")
            if has_keyboard():
                # Drop responses of the window to queries in the recording.
                with contextlib.suppress(termios.error):
                    termios.tcflush(0, termios.TCIFLUSH)
    return ended[0] if ended else None


async def _send_keys(send: trio.MemorySendChannel[Key]) -> None:
    """Read keys; pass those that control the playback to `send`, until no more can be read."""
    async with send:
        while typed := await read_keys():
            for key in keys_in(typed):
                # Drop keys beyond `_KEYS_MAX`: no user means that many.
                with contextlib.suppress(trio.WouldBlock):
                    send.send_nowait(key)
    # There is no keyboard any more: the playback continues without keys.


def keys_in(typed: bytes) -> Iterator[Key]:
    """Yield the keys in the input `typed` that control a playback.

    Keys are recognized in all encodings, since the recorded output may have selected any of them.
    """
    for match in _TYPED.finditer(typed):
        if match["arrow"]:
            yield _ARROWS[match["arrow"]]
            continue
        character = chr(int(match["code"])).encode() if match["code"] else match[0]
        if key := _CHARACTERS.get(character.lower()):
            yield key


async def print_all(cast: Cast) -> None:
    """Print all output of a recording without pauses, for a stdout that is not a terminal."""
    async with while_stdout_is_read():
        for event in cast.events:
            if event.code == asciicast.OUTPUT:
                await put(event.data.encode(errors="replace"))
