"""The screen of one terminal, kept by one emulator for all who ask.

Rules:

- It begins at most `REPLAY` bytes back from the first question, or from where the program showed to
  be full-screen, and follows from then on: whenever it is asked, and for such a program before the
  ring drops what it has not seen.
- What it cannot draw in time it skips, and takes from it only what stays in force (`Screen.skip`).
  That is when more than `REPLAY` bytes are new to it, or the ring drops them.
- Only who holds the lock draws. Skipping needs none: it is done between two steps of drawing.
- A change of the window's size is done where it was in the stream.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

import trio

from acpterm.terminal.screen import Screen
from acpterm.terminal.text import resync

if TYPE_CHECKING:
    from acpterm.terminal.shared_ring import SharedRing as Ring
    from acpterm.terminal.timeline import Timeline

REPLAY: Final = 256 * 1024
SCREEN_CELLS: Final = 1_000_000
# Bytes taken from the ring at once: each time, what was put off in a flood is taken in.
_PIECE: Final = 64 * 1024
# Bytes fed to the emulator between two checkpoints: a few milliseconds, on a screen of so many
# cells. A larger one is fed less, since three bytes can move all its rows.
_STEP: Final = 512
_STEP_CELLS: Final = 16 * 1024
_STEP_LEAST: Final = 8


class ScreenTooLargeError(Exception):
    """The window has more cells than an emulator is made for."""

    def __init__(self, cols: int, rows: int) -> None:
        super().__init__(
            f"a screen of {cols} columns and {rows} rows is too large: "
            f"make the terminal one of at most {SCREEN_CELLS} cells, or ask for text or raw"
        )


def check_screen(cols: int, rows: int) -> None:
    """Raise `ScreenTooLargeError` unless a window of this size can be shown as a screen."""
    if cols * rows > SCREEN_CELLS:
        raise ScreenTooLargeError(cols, rows)


class Source(Protocol):
    """The terminal, as far as its screen needs it."""

    cols: int
    rows: int

    @property
    def timeline(self) -> Timeline:
        """When it had which size."""

    @property
    def ring(self) -> Ring:
        """What it has printed."""


class ScreenView:
    """The screen of one terminal, brought up to date whenever it is asked for."""

    def __init__(self, source: Source) -> None:
        self._source: Final = source
        self._lock = trio.Lock()
        self._screen: Screen | None = None
        # Where it begins or goes on; None while nobody has asked.
        self._position: int | None = None
        self._resizes = 0
        # Whether what comes next may begin within a sequence.
        self._cut = False
        # Where what was drawn last ends: it may have been skipped from there.
        self._drawn = 0

    @property
    def position(self) -> int:
        """Up to where the stream is shown."""
        return self._position or 0

    @property
    def is_plain(self) -> bool:
        """Whether the main screen is shown, or nothing yet."""
        return self._screen is None or self._screen.grid.main is None

    async def text(self) -> str:
        """Give the text of `shown`."""
        return (await self.shown()).text()

    async def shown(self) -> Screen:
        """Give the screen, with all that was written when it was asked for.

        So it comes to an end however fast the program writes on; it takes up to half a second for
        `REPLAY` bytes, with checkpoints. The screen is the one that is kept: use it before the next
        checkpoint, and do not feed it. Raises `ScreenTooLargeError` while the window is too large.
        """
        source = self._source
        check_screen(source.cols, source.rows)
        target = source.ring.end
        async with self._lock:
            screen = self._begin(source.ring, target - REPLAY)
            if target - self.position > REPLAY:
                self._skip(source.ring, target - REPLAY)
            await self._draw(screen, target)
            while self._drawn < target and self.position < source.ring.end:
                # Beyond the target was skipped: what is drawn is all from before that.
                await self._draw(screen, source.ring.end)
            check_screen(source.cols, source.rows)
            return screen

    async def follow(self) -> None:
        """Draw all that was written so far, however much that is."""
        target = self._source.ring.end
        async with self._lock:
            await self._draw(self._begin(self._source.ring, target - REPLAY), target)

    def hold(self, end: int) -> None:
        """Begin at most `REPLAY` bytes before `end`, if it has not begun: it will be followed."""
        if self._position is None:
            self._position = max(0, end - REPLAY)

    def losing(self, ring: Ring, data: bytes | bytearray | memoryview) -> None:
        """Look once more at what the ring will drop when `data` is written to it.

        If that is new, all but the last `REPLAY` bytes are skipped: the next loss is far then.
        """
        if self._position is None:
            return
        end = ring.end + len(data)
        if end - ring.capacity <= self._position:
            return
        screen = self._begin(ring, self._position)
        target = max(end - REPLAY, end - ring.capacity)
        self._skip(ring, min(ring.end, target))
        if target > ring.end:
            screen.skip(bytes(data[: target - ring.end]))
            self._position = target
            self._cut = True

    def _begin(self, ring: Ring, start: int) -> Screen:
        """Give the screen; made now, it begins at `start`, or where it is held."""
        if self._screen is None:
            size = self._source.timeline.size
            self._screen = Screen(*(size if _fits(*size) else (1, 1)))
            if self._position is not None:
                start = self._position
            self._position = ring.start
            self._cut = ring.start > 0
            self._skip(ring, start)
        return self._screen

    def _skip(self, ring: Ring, target: int) -> None:
        """Go on to `target`, which the ring has reached, without drawing."""
        assert self._screen is not None  # noqa: S101  for the type checker
        if target > self.position:
            self._screen.skip(ring.read(self.position, target - self.position).data)
            self._position = target
            self._cut = True

    async def _draw(self, screen: Screen, target: int) -> None:
        while True:
            # To ask for the ring has what was put off taken in, which may skip beyond the target.
            ring = self._source.ring
            if self.position >= target:
                break
            piece = ring.read(self.position, min(_PIECE, target - self.position))
            data, at = piece.data, 0
            if piece.lost:
                screen.skip(b"")
            if piece.lost or self._cut:
                at = resync(data)
                self._cut = False
            self._position = piece.position + at
            while at < len(data):
                most = self._fit(screen)
                step = _STEP * _STEP_CELLS // max(_STEP_CELLS, screen.cols * screen.rows)
                part = data[at : at + min(max(_STEP_LEAST, step), most)]
                screen.feed(part)
                at += len(part)
                self._position = self._drawn = reached = piece.position + at
                await trio.lowlevel.checkpoint()
                if self._position != reached:
                    # It was skipped meanwhile.
                    break
        self._fit(screen)

    def _fit(self, screen: Screen) -> int:
        """Give the screen the size that the window had; return for how many bytes it had that."""
        timeline = self._source.timeline
        while resize := timeline.resize_at(self._resizes):
            if resize.position > self.position:
                return resize.position - self.position
            self._resizes = max(self._resizes, timeline.first_resize) + 1
            # While the window is too large nobody is shown it.
            if _fits(resize.cols, resize.rows):
                screen.resize(resize.cols, resize.rows)
        return _PIECE


def _fits(cols: int, rows: int) -> bool:
    return cols * rows <= SCREEN_CELLS
