"""Plays a recording in the window of this command, and restores the window afterwards.

States of a `Playback`: *playing* and *paused*. `PlayerKey.PAUSE` switches between them. A step
(`PlayerKey.STEP`) plays up to the next output event and pauses. Playback time is the cast's time
with each idle period cut to the idle limit; `speed` is playback seconds per real second. Seeking
backwards reads the cast again from its start, feeds an emulator up to the new time, and paints only
the final screen, so that earlier output does not flash by. Without an emulator, all output up to
the new time is written again.

The recorded program's own bytes are written, including escape sequences. Only terminal queries are
left out: the terminal's replies would become input of the user's next command. The output may leave
the terminal in any state, so `paint.LEAVE` is written at the end, even after an error. Keys are not
echoed, and input that is still unread at the end is dropped.
"""

import contextlib
import math
import os
import re
import termios
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from enum import Enum, auto
from typing import Final

import trio

from acpterm.commands.keyboard import has_keyboard, quiet_keys, read_keys
from acpterm.commands.output.trio_stdout import note, put, while_stdout_is_read
from acpterm.recording import asciicast
from acpterm.recording.asciicast import OUTPUT, Cast, Event
from acpterm.runtime import stdio
from acpterm.runtime.shutdown_signals import shutdown_signals
from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.paint import LEAVE, snapshot
from acpterm.terminal.vt.queries import QueryFilter

# Seconds by which `PlayerKey.BACK` and `PlayerKey.FORWARD` change the playback time.
SEEK_S: Final = 5.0
# Factor by which `PlayerKey.FASTER` multiplies the speed, and `PlayerKey.SLOWER` divides it.
SPEED_FACTOR: Final = 2.0
# Without an emulator, seeking backwards clears the screen and prints everything again.
_CLEAR: Final = LEAVE + b"\x1b[H\x1b[2J"


class PlayerKey(Enum):
    PAUSE = auto()
    STEP = auto()
    BACK = auto()
    FORWARD = auto()
    FASTER = auto()
    SLOWER = auto()
    QUIT = auto()


_KEYS_MAX: Final = 64
_ARROWS: Final = {
    b"A": PlayerKey.FASTER,
    b"B": PlayerKey.SLOWER,
    b"C": PlayerKey.FORWARD,
    b"D": PlayerKey.BACK,
}
_CHARACTERS: Final = {b" ": PlayerKey.PAUSE, b".": PlayerKey.STEP, b"q": PlayerKey.QUIT}
# An arrow, a key as kitty's protocol reports it, another sequence, or a character.
_TYPED: Final = re.compile(
    rb"\x1b(?:\[[0-9;:]*|O)(?P<arrow>[ABCD])|\x1b\[(?P<code>\d{1,3})(?:[;:][0-9;:]*)?u"
    rb"|\x1b(?:\[[0-?]*[ -/]*[@-~]|O.|.)|.",
    re.DOTALL,
)


class Playback:
    """A playback: pauses over `idle_limit` are cut; `reopen` reads the cast again, to seek."""

    def __init__(
        self,
        cast: Cast,
        write: Callable[[bytes], Awaitable[None]],
        *,
        speed: float = 1.0,
        idle_limit: float = math.inf,
        reopen: Callable[[], Cast] | None = None,
    ) -> None:
        for name, value in (("speed", speed), ("idle_limit", idle_limit)):
            if not value > 0:
                raise ValueError(f"{name} must be above 0, not {value}")
        self.cast = cast
        self.speed = speed
        self.paused = False
        self.time = 0.0
        """Playback time in seconds of the last event or the last seek."""
        self._write: Final = write
        self._idle_limit: Final = idle_limit
        self._reopen: Final = reopen
        self._queries = QueryFilter()
        self._last = 0.0
        self._next: tuple[float, Event] | None = None
        # Clock time at which the playback was at `time`.
        self._clock = 0.0
        self._advance()

    async def run(self, keys: trio.MemoryReceiveChannel[PlayerKey] | None = None) -> None:
        self._clock = trio.current_time()
        while self._next is not None:
            key = await self._wait(self._next[0], keys)
            if key is PlayerKey.QUIT:
                return
            if key is not None:
                await self._press(key)
            elif not self.paused:
                await self._show_next()

    async def _wait(
        self, until: float, keys: trio.MemoryReceiveChannel[PlayerKey] | None
    ) -> PlayerKey | None:
        """Return the next key; None if the playback time reaches `until` first."""
        if keys is None:
            await trio.sleep_until(self._due(until))
            return None
        try:
            # Check for a key first, so that keys also work while events are late.
            with suppress(trio.WouldBlock):
                return keys.receive_nowait()
            with trio.move_on_at(self._due(until)):
                return await keys.receive()
        except trio.EndOfChannel:
            # No more keys come, so the user could not end a pause.
            if self.paused:
                self._resume()
            await trio.sleep_until(self._due(until))
        return None

    def _due(self, until: float) -> float:
        """Return the clock time at which the playback time is `until`; infinity in a pause."""
        return math.inf if self.paused else self._clock + (until - self.time) / self.speed

    async def _press(self, key: PlayerKey) -> None:
        if key is PlayerKey.PAUSE and self.paused:
            self._resume()
        elif key is PlayerKey.PAUSE:
            self._move(self._now())
            self.paused = True
        elif key is PlayerKey.STEP:
            self.paused = True
            await self._step()
        elif key in (PlayerKey.FASTER, PlayerKey.SLOWER):
            self._move(self._now())
            self.speed *= SPEED_FACTOR if key is PlayerKey.FASTER else 1 / SPEED_FACTOR
        elif key is PlayerKey.FORWARD:
            await self._forward(self._now() + SEEK_S)
        elif key is PlayerKey.BACK:
            await self._back(max(0.0, self._now() - SEEK_S))

    def _resume(self) -> None:
        self.paused = False
        self._clock = trio.current_time()

    def _now(self) -> float:
        if self.paused or self._next is None:
            return self.time
        now = self.time + (trio.current_time() - self._clock) * self.speed
        return min(now, self._next[0])

    def _move(self, time: float) -> None:
        self.time, self._clock = time, trio.current_time()

    async def _show_next(self) -> None:
        assert self._next is not None  # noqa: S101  the caller has checked it
        time, event = self._next
        self._clock += (time - self.time) / self.speed
        self.time = time
        self._advance()
        await self._print(event)

    async def _step(self) -> None:
        while self._next is not None:
            time, event = self._next
            self._move(time)
            self._advance()
            if event.code == OUTPUT:
                await self._print(event)
                return

    async def _forward(self, to: float) -> None:
        while self._next is not None and self._next[0] <= to:
            event = self._next[1]
            self._advance()
            await self._print(event)
        self._move(to)

    async def _back(self, to: float) -> None:
        if self._reopen is None:
            await self._write(b"\a")
            return
        self.cast = self._reopen()
        self._queries, self._last, self.time, self._next = QueryFilter(), 0.0, 0.0, None
        self._advance()
        emulator = Emulator(self.cast.cols, self.cast.rows)
        if emulator.is_available:
            await self._skip(to, emulator)
            await self._write(snapshot(emulator.screen()))
        else:
            await self._write(_CLEAR)
            await self._forward(to)
        self._move(to)

    async def _skip(self, to: float, emulator: Emulator) -> None:
        while self._next is not None and self._next[0] <= to:
            event = self._next[1]
            self._advance()
            if event.code == OUTPUT:
                emulator.feed(self._queries.feed(event.data.encode(errors="replace")))
            await trio.lowlevel.checkpoint()

    async def _print(self, event: Event) -> None:
        if event.code == OUTPUT and (
            data := self._queries.feed(event.data.encode(errors="replace"))
        ):
            await self._write(data)

    def _advance(self) -> None:
        before = 0.0 if self._next is None else self._next[0]
        event = next(self.cast.events, None)
        if event is None:
            self._next = None
            return
        due = before + min(event.time - self._last, self._idle_limit)
        self._last = event.time
        self._next = due, event


async def play_here(playback: Playback) -> int | None:
    """Play a recording in the window on stdout; return the signal that ended it, if any."""
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
                send, keys = trio.open_memory_channel[PlayerKey](_KEYS_MAX)
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


async def _send_keys(send: trio.MemorySendChannel[PlayerKey]) -> None:
    async with send:
        while typed := await read_keys():
            for key in keys_in(typed):
                # Drop keys beyond `_KEYS_MAX`: no user means that many.
                with contextlib.suppress(trio.WouldBlock):
                    send.send_nowait(key)
    # There is no keyboard any more: the playback continues without keys.


def keys_in(typed: bytes) -> Iterator[PlayerKey]:
    for match in _TYPED.finditer(typed):
        if match["arrow"]:
            yield _ARROWS[match["arrow"]]
            continue
        character = chr(int(match["code"])).encode() if match["code"] else match[0]
        if key := _CHARACTERS.get(character.lower()):
            yield key


async def print_all(cast: Cast) -> None:
    async with while_stdout_is_read():
        for event in cast.events:
            if event.code == asciicast.OUTPUT:
                await put(event.data.encode(errors="replace"))
