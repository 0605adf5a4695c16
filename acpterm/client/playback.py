"""Playing an asciicast on a terminal, steered by keys.

States: *playing* and *paused*; the space bar changes between them, a step pauses. The time of the
playback is that of the cast, without what is over the limit of an idle time; `speed` maps it to the
clock. Going back reads the cast again from its beginning: an emulator of its own is fed up to where
it goes on, and its screen is painted, so that nothing flashes by.

What is played are a program's own bytes, escape sequences and all, but for what the program asked
its terminal: the answers would be typed into whatever comes after. A caller that plays them on a
terminal sends it `paint.LEAVE` afterwards, however the playback ended: a program that was cut short
leaves its terminal in any state.
"""

import math
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Final

import trio

from acpterm.client.replay import OUTPUT, Cast, Event
from acpterm.terminal.vt.emulator import Emulator
from acpterm.terminal.vt.paint import LEAVE, snapshot
from acpterm.terminal.vt.queries import QueryFilter

SEEK_S: Final = 5.0
SPEED_FACTOR: Final = 2.0
# Where there is no emulator to paint from: the screen is cleared, and all is printed again.
_CLEAR: Final = LEAVE + b"\x1b[H\x1b[2J"


class Key(Enum):
    """What steers a playback."""

    PAUSE = auto()
    STEP = auto()
    BACK = auto()
    FORWARD = auto()
    FASTER = auto()
    SLOWER = auto()
    QUIT = auto()


class Playback:
    """One playback. `reopen` reads the cast again, for going back; None if it cannot be done.

    `speed`: how many times as fast; `idle_limit`: the most seconds, of the cast, between two
    events. Raises `ValueError` unless both are above 0.
    """

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
        """The time of the playback, in seconds: that of the last event, or of the last seek."""
        self._write: Final = write
        self._idle_limit: Final = idle_limit
        self._reopen: Final = reopen
        self._queries = QueryFilter()
        self._last = 0.0
        self._next: tuple[float, Event] | None = None
        # When the playback was at `time`.
        self._clock = 0.0
        self._advance()

    async def run(self, keys: trio.MemoryReceiveChannel[Key] | None = None) -> None:
        """Play to the end, or until it is quit. Can be cancelled at any time.

        A slow `write` is caught up with.
        """
        self._clock = trio.current_time()
        while self._next is not None:
            key = await self._wait(self._next[0], keys)
            if key is Key.QUIT:
                return
            if key is not None:
                await self._press(key)
            elif not self.paused:
                await self._show_next()

    async def _wait(self, until: float, keys: trio.MemoryReceiveChannel[Key] | None) -> Key | None:
        """Wait for the next key; None if the time comes first."""
        due = math.inf if self.paused else self._clock + (until - self.time) / self.speed
        if keys is None:
            await trio.sleep_until(due)
            return None
        try:
            # Also when the next event is late.
            return keys.receive_nowait()
        except trio.WouldBlock:
            with trio.move_on_at(due), suppress(trio.EndOfChannel):
                return await keys.receive()
        except trio.EndOfChannel:
            # No key will come that could go on.
            if self.paused:
                self._resume()
            await trio.sleep_until(self._clock + (until - self.time) / self.speed)
        return None

    async def _press(self, key: Key) -> None:
        if key is Key.PAUSE and self.paused:
            self._resume()
        elif key is Key.PAUSE:
            self._move(self._now())
            self.paused = True
        elif key is Key.STEP:
            self.paused = True
            await self._step()
        elif key in (Key.FASTER, Key.SLOWER):
            self._move(self._now())
            self.speed *= SPEED_FACTOR if key is Key.FASTER else 1 / SPEED_FACTOR
        elif key is Key.FORWARD:
            await self._forward(self._now() + SEEK_S)
        elif key is Key.BACK:
            await self._back(max(0.0, self._now() - SEEK_S))

    def _resume(self) -> None:
        self.paused = False
        self._clock = trio.current_time()

    def _now(self) -> float:
        """Return the time of the playback now."""
        if self.paused or self._next is None:
            return self.time
        now = self.time + (trio.current_time() - self._clock) * self.speed
        return min(now, self._next[0])

    def _move(self, time: float) -> None:
        self.time, self._clock = time, trio.current_time()

    async def _show_next(self) -> None:
        """Show the next event, whose time has come."""
        assert self._next is not None  # noqa: S101  looked at by the caller, for the type checker
        time, event = self._next
        self._clock += (time - self.time) / self.speed
        self.time = time
        self._advance()
        await self._print(event)

    async def _step(self) -> None:
        """Show the next output."""
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
        try:
            if emulator.is_available:
                await self._skip(to, emulator)
                await self._write(snapshot(emulator.screen()))
            else:
                await self._write(_CLEAR)
                await self._forward(to)
        finally:
            emulator.close()
        self._move(to)

    async def _skip(self, to: float, emulator: Emulator) -> None:
        """Go on to a time; what is shown until then is shown by the emulator alone."""
        while self._next is not None and self._next[0] <= to:
            event = self._next[1]
            self._advance()
            if event.code == OUTPUT:
                emulator.feed(self._queries.feed(event.data.encode(errors="replace")))
            await trio.lowlevel.checkpoint()

    async def _print(self, event: Event) -> None:
        if event.code == OUTPUT and (
            passed := self._queries.feed(event.data.encode(errors="replace"))
        ):
            await self._write(passed)

    def _advance(self) -> None:
        """Look at the next event, and when it is due."""
        before = 0.0 if self._next is None else self._next[0]
        event = next(self.cast.events, None)
        if event is None:
            self._next = None
            return
        due = before + min(event.time - self._last, self._idle_limit)
        self._last = event.time
        self._next = due, event
