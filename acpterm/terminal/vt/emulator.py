"""The emulator of one terminal, which takes output and makes screens: an adapter of libghostty-vt.

States: *idle* (no output was fed and no screen was requested: there is no *native terminal*, the
library's object, yet) and *live*.

`feed` collects the replies to all queries in its data and calls `on_reply` once; those beyond
`REPLIES_MAX_BYTES` are dropped. A reply is a number, a state or fixed text (see `replies`).

Sizes: a native terminal has at least `SIZE_MIN` columns and rows, because smaller ones have crashed
the library; a smaller terminal shows a part of it. Terminals of more than `LINKS_CELLS_MAX` cells
have no hyperlinks, because the library ends the process if a block of its rows has too many links.
While a terminal has more than `CELLS_MAX` cells, the native terminal keeps its size, and `screen`
raises. A program cannot change the size (DECCOLM).

A crash of the library ends the worker. `at_work` is entered around each call that could crash; the
next worker then uses a `broken.BrokenEmulator` for this terminal.
"""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from acpterm.terminal.vt import scrolled_off
from acpterm.terminal.vt.dump import Dump
from acpterm.terminal.vt.library import EmulatorMissingError, load
from acpterm.terminal.vt.native import SIZE_MAX, Feeding, feeding_by_address, native
from acpterm.terminal.vt.repair import repair
from acpterm.terminal.vt.screen import EmulatorScreen

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from acpterm.terminal.vt.style import Cell

CELLS_MAX: Final = 1_000_000  # Terminals with more cells have no screen.
SIZE_MIN: Final = 2  # columns, and rows, of a native terminal
LINKS_CELLS_MAX: Final = 32 * 1024  # Terminals with more cells have no hyperlinks (OSC 8).
# The beginning of a hyperlink, and the unknown OSC that replaces it.
_LINK: Final = b"\x1b]8;"
_NO_LINK: Final = b"\x1b]8777;"
# `feed_for` feeds the output in steps, and reads the clock after each step. The size of a step
# adapts to the speed of the previous one, within these limits.
_STEP_FIRST_BYTES: Final = 512
_STEP_MAX_BYTES: Final = 64 * 1024
_STEP_MIN_BYTES: Final = 16
_CANCEL: Final = b"\x18"
_RESET: Final = b"\x1bc"
_ERASE_SCROLLBACK: Final = b"\x1b[3J"
# What a row shows, dim, whose content is not known.
_UNKNOWN: Final = "[not known until the program draws it]"

OnReply: TypeAlias = "Callable[[bytes], object]"
Data: TypeAlias = bytes | bytearray | memoryview


class ScreenTooLargeError(Exception):
    """More than `CELLS_MAX` cells, or `SIZE_MAX` columns or rows."""

    def __init__(self, cols: int, rows: int) -> None:
        super().__init__(
            f"a screen of {cols} columns and {rows} rows is too large: "
            f"make the terminal one of at most {CELLS_MAX} cells, or ask for text or raw"
        )


def check_size(cols: int, rows: int) -> None:
    if cols * rows > CELLS_MAX or max(cols, rows) > SIZE_MAX:
        raise ScreenTooLargeError(cols, rows)


def preload() -> None:
    """Load libghostty-vt before a terminal needs it: that takes some 60 ms."""
    with suppress(EmulatorMissingError):
        native()


class Emulator:
    """The emulator of one terminal, of at least 1 column and row.

    `at_work` is a reusable context manager; see the module.
    """

    __slots__ = ("_at_work", "_cols", "_on_reply", "_rows", "_tail", "_terminal")

    def __init__(
        self,
        cols: int,
        rows: int,
        on_reply: OnReply | None = None,
        *,
        at_work: AbstractContextManager[object] = nullcontext(),  # noqa: B008  has no state
    ) -> None:
        _check(cols, rows)
        self._cols = cols
        self._rows = rows
        self._on_reply = on_reply
        self._at_work = at_work
        # The native terminal.
        self._terminal: Any = None
        # In a large terminal: the end of the output fed last, if a hyperlink may begin there.
        self._tail = b""

    @property
    def is_available(self) -> bool:
        try:
            load()
        except EmulatorMissingError:
            return False
        return True

    def feed(self, data: Data) -> None:
        if not len(data):
            return
        try:
            terminal = self._live()
        except EmulatorMissingError:
            return
        library = native()
        address = library.address(terminal)
        feeding_by_address[address] = feeding = Feeding(self._cols, self._rows)
        if self._tail or self._cols * self._rows > LINKS_CELLS_MAX:
            data = self._without_links(data)
        try:
            with self._at_work:
                buffer = library.ffi.from_buffer("uint8_t[]", data)
                library.lib.ghostty_terminal_vt_write(terminal, buffer, len(data))
                size = self._native_size()
                if size is not None and library.size(terminal) != size:
                    # The program has changed the size: undo that.
                    library.resize(terminal, *size)
        finally:
            del feeding_by_address[address]
        if feeding.replies and self._on_reply is not None:
            self._on_reply(bytes(feeding.replies))

    def _without_links(self, data: Data) -> bytes:
        """Disable hyperlinks in the next output if the terminal is large."""
        tail = self._tail
        whole = tail + bytes(data)
        self._tail = b""
        if self._cols * self._rows > LINKS_CELLS_MAX:
            begin = max(0, len(whole) - len(_LINK) + 1)
            self._tail = next(
                (whole[at:] for at in range(begin, len(whole)) if _LINK.startswith(whole[at:])), b""
            )
        return whole.replace(_LINK, _NO_LINK)[len(tail) :]

    def feed_for(self, data: memoryview, seconds: float) -> int:
        """Emulate the next output for about `seconds`; return how many bytes: at least 1."""
        return self._feed_for(data, 0, time.monotonic() + seconds)

    def feed_simple_for(self, data: bytes, seconds: float) -> int:
        """Like `feed_for`, for simple output: skips what certainly scrolls off the screen."""
        end = time.monotonic() + seconds
        fed = 0
        if (skipped := self._scrolled_off(data)) is not None:
            self.feed(skipped.substitute)
            fed = skipped.size
        return self._feed_for(memoryview(data), fed, end)

    def _feed_for(self, data: memoryview, fed: int, end: float) -> int:
        """Feed `data` from index `fed` until the monotonic time `end`; return the index reached."""
        now = time.monotonic()
        step = _STEP_FIRST_BYTES
        # A few bytes can redraw all cells, or repeat a character 65,535 times.
        quick = max(0.0, end - now) / 8
        while fed < len(data):
            part = data[fed : fed + step]
            self.feed(part)
            fed += len(part)
            before, now = now, time.monotonic()
            if now >= end:
                break
            step = (
                min(2 * step, _STEP_MAX_BYTES)
                if now - before < quick
                else max(step // 4, _STEP_MIN_BYTES)
            )
        return fed

    def _scrolled_off(self, data: bytes) -> scrolled_off.ScrolledOff | None:
        if self._terminal is None or self._tail:
            return None
        library = native()
        _, rows = library.size(self._terminal)
        found = scrolled_off.find(data, rows)
        if found is None or not library.is_ground(self._terminal):
            return None
        with self._at_work:
            answer = library.ask(self._terminal, scrolled_off.MARGINS_QUERY)
        return found if answer == scrolled_off.no_margins(rows) else None

    def resize(self, cols: int, rows: int) -> None:
        """Change the size for later output; a program in mode 2048 is sent a report of it."""
        _check(cols, rows)
        self._cols, self._rows = cols, rows
        size = self._native_size()
        if self._terminal is None or size is None:
            return
        library = native()
        address = library.address(self._terminal)
        feeding_by_address[address] = feeding = Feeding(cols, rows)
        try:
            with self._at_work:
                if library.size(self._terminal) != size:
                    library.resize(self._terminal, *size)
        finally:
            del feeding_by_address[address]
        if feeding.replies and self._on_reply is not None:
            self._on_reply(bytes(feeding.replies))

    def screen(self) -> EmulatorScreen:
        """Return a snapshot. Raises `ScreenTooLargeError` and `EmulatorMissingError`."""
        check_size(self._cols, self._rows)
        terminal = self._live()
        library = native()
        with self._at_work:
            data = library.dump(terminal)
            if data is None:
                # End an incomplete sequence, which may be longer than the library stores; and
                # repair wide characters that were cut in half.
                if not library.is_ground(terminal):
                    library.lib.ghostty_terminal_vt_write(terminal, _CANCEL, len(_CANCEL))
                repair(library.ffi, library.lib, terminal)
                data = library.dump(terminal)
            if data is None:
                # Reset: a blank screen, which the program repaints, is better than no screen.
                library.lib.ghostty_terminal_vt_write(terminal, _RESET, len(_RESET))
                data = library.dump(terminal)
        if data is None:
            raise RuntimeError("libghostty: no snapshot of the terminal")
        return EmulatorScreen(Dump(data), self._cols, self._rows)

    def state(self) -> bytes | None:
        """Return the state for `restore`; None within an escape sequence, or if it is too large."""
        if self._terminal is None or self._cols * self._rows > LINKS_CELLS_MAX:
            return None
        library = native()
        # No state is better than no terminal.
        with self._at_work, suppress(MemoryError, RuntimeError):
            return library.dump(self._terminal) if library.is_ground(self._terminal) else None
        return None

    def keep_scrollback(self, bytes_max: int) -> None:
        library, terminal = native(), self._live()
        for option in (
            library.lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES,
            library.lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_LINES,
        ):
            value = library.ffi.new("size_t *", bytes_max)
            library.check(library.lib.ghostty_terminal_set(terminal, option, value), "set")

    def pop_scrollback(self) -> list[list[Cell]]:
        """Remove and return the rows that scrolled off the main screen.

        Returns none within an escape sequence or a character: they stay until the next call.
        """
        data = native().dump(self._live())
        dump = Dump(data) if data is not None else None
        if dump is None or dump.held:
            return []
        pages = [*dump.scrollback, *dump.screens[0].pages]
        found = [page.cells(y) for page in pages for y in range(len(page))]
        self.feed(_ERASE_SCROLLBACK)
        return found[: -dump.rows]

    def restore(self, state: bytes) -> bool:
        """Continue from an earlier worker's `state`; return whether it is known."""
        # Empty, or of another version of the library: each row says that it is not known.
        self._terminal = None
        with suppress(EmulatorMissingError):
            library = native()
            with self._at_work:
                self._terminal = library.restore(state) if state else None
            if self._terminal is None:
                # Lines that are printed next continue in the last row, and scroll the notices off.
                rows = "\r\n".join([_UNKNOWN[: self._cols]] * self._rows)
                self.feed(f"\x1b[2m{rows}\x1b[m\r".encode())
                return False
            self.resize(self._cols, self._rows)
        return True

    def _live(self) -> Any:
        if self._terminal is None:
            load()
            library = native()
            # The native terminal of a terminal that is too large gets a default size.
            cols, rows = self._native_size() or (80, 24)
            with self._at_work:
                self._terminal = library.new(cols, rows)
        return self._terminal

    def _native_size(self) -> tuple[int, int] | None:
        """Return the size that the native terminal must have; None to keep the present one."""
        try:
            check_size(self._cols, self._rows)
        except ScreenTooLargeError:
            return None
        return max(SIZE_MIN, self._cols), max(SIZE_MIN, self._rows)


def _check(cols: int, rows: int) -> None:
    if cols < 1 or rows < 1:
        raise ValueError(f"a screen has at least 1 column and 1 row, not {cols} by {rows}")
