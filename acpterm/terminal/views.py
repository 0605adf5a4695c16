"""The three ways to look at what a terminal's program wrote: text, raw, screen.

- *text*: what agents read; kept as the terminal goes along (`text`), so it has its own retention;
- *raw*: the bytes that the ring has, escape sequences and all;
- *screen*: what a window of the terminal's size shows now, by a VT emulator that is made at the
  first question and then follows; it starts at most `REPLAY` bytes back.

`since` reads a part of the stream: positions are those of the ring, whatever the view. A part of
text is the text of these bytes alone: a carriage return does not reach back into an earlier part.
"""

from typing import Final, NamedTuple

import trio

from acpterm.terminal import utf8
from acpterm.terminal.screen import Screen
from acpterm.terminal.terminal import Terminal
from acpterm.terminal.text import SLICE_MIN, resync, text_of

REPLAY: Final = 256 * 1024
SCREEN_CELLS: Final = 1_000_000
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


class Part(NamedTuple):
    """A part of the stream."""

    data: bytes
    """As the view shows it: UTF-8 for text, the bytes themselves for raw."""
    position: int
    """Where the next part begins."""
    lost: int
    """How many bytes after the position asked for were gone already."""


def raw(terminal: Terminal) -> tuple[str, bool]:
    """Give the raw output as text, and whether some of it is gone.

    At most the terminal's limit in UTF-8 bytes, cut at a character; what is not UTF-8 is U+FFFD.
    """
    ring, limit = terminal.ring, terminal.limit
    start = max(ring.start, ring.end - limit)
    data = ring.read(start).data
    if start:
        data = data[utf8.boundary(data[:3], 0) :]
    if terminal.exit is None:
        data = data[: utf8.whole(data)]
    text, cut = last(data.decode(errors="replace"), limit)
    return text, start > 0 or cut


def last(text: str, limit: int) -> tuple[str, bool]:
    """Give the last `limit` bytes of UTF-8 of a text, from a character on; whether it was cut."""
    data = text.encode()
    cut = utf8.boundary(data, max(0, len(data) - limit))
    return data[cut:].decode(), cut > 0


def since(terminal: Terminal, position: int | None, most: int, *, as_text: bool) -> Part:
    """Give at most `most` bytes that came after `position`; None is the oldest that are kept.

    Text ends before a character or escape sequence that is not complete yet; the rest comes with
    the next part. One that is longer than `most` is given whole all the same. Raises `ValueError`
    for a position that the stream has not reached.
    """
    asked = terminal.ring.start if position is None else position
    data, start, lost = terminal.ring.read(asked, most)
    if not as_text:
        return Part(data, start + len(data), lost)
    skipped = resync(data) if lost or (position is None and start) else 0
    text, used = _text(terminal, data[skipped:], start + len(data))
    while not used and not skipped and len(data) == most < SLICE_MIN:
        most = min(2 * most, SLICE_MIN)
        data = terminal.ring.read(start, most).data
        text, used = _text(terminal, data, start + len(data))
    return Part(text.encode(), start + skipped + used, lost + skipped)


def _text(terminal: Terminal, data: bytes, end: int) -> tuple[str, int]:
    return text_of(data, final=terminal.exit is not None and end == terminal.ring.end)


def check_screen(cols: int, rows: int) -> None:
    """Raise `ScreenTooLargeError` unless a window of this size can be shown as a screen."""
    if cols * rows > SCREEN_CELLS:
        raise ScreenTooLargeError(cols, rows)


class ScreenView:
    """The screen of one terminal, brought up to date whenever it is asked for.

    Made, and asked, it raises `ScreenTooLargeError` while the window is too large.
    """

    def __init__(self, terminal: Terminal) -> None:
        self._terminal = terminal
        self._position = 0
        self._screen = self._new()

    def _new(self) -> Screen:
        terminal = self._terminal
        check_screen(terminal.cols, terminal.rows)
        return Screen(terminal.cols, terminal.rows)

    @property
    def position(self) -> int:
        """Up to where the stream is shown."""
        return self._position

    async def text(self) -> str:
        """Give what the screen shows. Takes up to a second for `REPLAY` bytes, with checkpoints.

        It shows all that was written when it was asked, so it comes to an end however fast the
        program writes on. Raises `ScreenUnavailable` without the emulator.
        """
        terminal = self._terminal
        check_screen(terminal.cols, terminal.rows)
        target = terminal.ring.end
        if target - self._position > REPLAY:
            self._screen = self._new()
            self._position = target - REPLAY
        while self._position < target:
            check_screen(terminal.cols, terminal.rows)
            step = _STEP * _STEP_CELLS // max(_STEP_CELLS, terminal.cols * terminal.rows)
            piece = terminal.ring.read(self._position, max(_STEP_LEAST, step))
            skipped = resync(piece.data) if piece.lost else 0
            if (self._screen.cols, self._screen.rows) != (terminal.cols, terminal.rows):
                self._screen.resize(terminal.cols, terminal.rows)
            self._screen.feed(piece.data[skipped:])
            self._position = piece.position + len(piece.data)
            await trio.lowlevel.checkpoint()
        return self._screen.text()
