"""The emulator of one terminal, which takes output and makes screens: an adapter of libghostty-vt.

States: *idle* (no output was fed and no screen was requested: there is no *native terminal*, the
library's object, yet) and *live*.

`feed` collects the replies to all queries in its data and calls `on_reply` once; those beyond
`REPLIES_MAX_BYTES` are dropped. A reply is a number, a state or fixed text (see `native`).

Sizes: a native terminal has at least `SIZE_MIN` columns and rows, because smaller ones have crashed
the library; a smaller terminal shows a part of it. Terminals of more than `LINKS_CELLS_MAX` cells
have no hyperlinks, because the library ends the process if a block of its rows has too many links.
While a terminal has more than `CELLS_MAX` cells, the native terminal keeps its size, and `screen`
raises. A program cannot change the size (DECCOLM).

A crash of the library ends the worker. `at_work` is entered around each call that could crash; the
next worker then uses a `broken.BrokenEmulator` for this terminal.

Output that scrolls off the screen before it can be seen need not be emulated (`find_scrolled_off`).

In simple output (`text.simple_output`), the output after a CR LF begins at the left of a row,
whatever output came before. Let the screen have N rows. When N lines have followed, the cursor is
in the last row. When 2 N lines have followed, every row shows one of these lines. So the screen
depends only on the last 2 N lines, and on the pen (the attributes of characters to be written) at
their beginning, if two conditions hold:

- the output does not begin within an escape sequence;
- the whole screen scrolls: no margins are set.

Later output may begin with REP, an escape sequence that repeats the last character printed. So the
last 2 N lines must print a character: if all of them are blank, nothing is skipped.
Simple output changes neither modes nor tab stops, and the emulator has no scrollback.

The skipped output is replaced by a CR LF, which ends the current line, and by the SGR sequences
that set the pen: the last reset in the skipped output, and those after it.

`repair`: when a terminal becomes narrower and does not rewrap its lines (on the alternate screen,
or without DECAWM), a wide character may be cut in two. libghostty-vt then keeps the left half in
the last column, but its encoder refuses the whole screen. It overwrites such halves with blanks.
The cursor stays where it is, but a pending wrap is lost: the next character overwrites the last
column instead of going to the next row.
"""

from __future__ import annotations

import struct
import time
from contextlib import nullcontext, suppress
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from acpterm.terminal.text import simple_output
from acpterm.terminal.vt.dump import Dump
from acpterm.terminal.vt.library import EmulatorMissingError, load
from acpterm.terminal.vt.native import SIZE_MAX, Feeding, feeding_by_address, native
from acpterm.terminal.vt.screen import EmulatorScreen

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
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

_RESETS: Final = (b"\x1b[m", b"\x1b[0m")

# DECRQSS of DECSTBM and DECSLRM. Without side margins, the second reply says that it is invalid.
MARGINS_QUERY: Final = b"\x1bP$qr\x1b\\\x1bP$qs\x1b\\"

_NARROW, _WIDE, _TAIL, _HEAD = range(4)
_DECOM: Final = 6
# ANSI modes have the highest bit of 16 set.
_IRM: Final = 1 << 15 | 4
_LEGACY_ALTERNATE: Final = 47
_ALTERNATE: Final = 1


def repair(ffi: Any, lib: Any, terminal: Any) -> None:
    _erase_halves(ffi, lib, terminal)
    key = lib.GHOSTTY_TERMINAL_DATA_ACTIVE_SCREEN
    is_alternate = _get(ffi, lib, terminal, key, "GhosttyTerminalScreen") == _ALTERNATE
    mode = _mode(ffi, lib, terminal, _LEGACY_ALTERNATE)
    _write(lib, terminal, b"\x1b[?47l" if is_alternate else b"\x1b[?47h")
    _erase_halves(ffi, lib, terminal)
    _write(lib, terminal, b"\x1b[?47h" if is_alternate else b"\x1b[?47l")
    lib.ghostty_terminal_set(terminal, lib.GHOSTTY_TERMINAL_OPT_MODE, mode)


def _erase_halves(ffi: Any, lib: Any, terminal: Any) -> None:
    # Erase the rows that have scrolled off and that the library still keeps: they may have halves
    # too.
    _write(lib, terminal, b"\x1b[3J")
    halves = [(x, y) for y, row in enumerate(_rows(ffi, lib, terminal)) for x in _halves(row)]
    if not halves:
        return
    x = _get(ffi, lib, terminal, lib.GHOSTTY_TERMINAL_DATA_CURSOR_X, "uint16_t")
    y = _get(ffi, lib, terminal, lib.GHOSTTY_TERMINAL_DATA_CURSOR_Y, "uint16_t")
    # Write to the screen, and not to a status line (DECSASD).
    _write(lib, terminal, b"\x1b[0$}")
    # Unlike escape sequences, setting modes through the library does not move the cursor.
    modes = [_switch_off(ffi, lib, terminal, mode) for mode in (_DECOM, _IRM)]
    for column, row in [*halves, (x, y)]:
        _write(lib, terminal, b"\x1b[%d;%dH" % (row + 1, column + 1))
        if (column, row) in halves:
            # Write a blank instead of erasing, since an erasure spares protected cells.
            _write(lib, terminal, b" ")
    for mode in modes:
        lib.ghostty_terminal_set(terminal, lib.GHOSTTY_TERMINAL_OPT_MODE, mode)


def _switch_off(ffi: Any, lib: Any, terminal: Any, number: int) -> Any:
    """Reset a mode; return its old setting for `ghostty_terminal_set`."""
    before = _mode(ffi, lib, terminal, number)
    off = ffi.new("GhosttyTerminalModeConfig *", (number, False))
    lib.ghostty_terminal_set(terminal, lib.GHOSTTY_TERMINAL_OPT_MODE, off)
    return before


def _mode(ffi: Any, lib: Any, terminal: Any, number: int) -> Any:
    mode = ffi.new("GhosttyTerminalModeConfig *", (number, False))
    lib.ghostty_terminal_get(terminal, lib.GHOSTTY_TERMINAL_DATA_MODE, mode)
    return mode


def _rows(ffi: Any, lib: Any, terminal: Any) -> Iterator[list[int]]:
    """Yield the widths of the cells of each row; none if the library lacks memory."""
    state, rows = ffi.new("GhosttyRenderState *"), ffi.new("GhosttyRenderStateRowIterator *")
    view = ffi.new("GhosttyCellsView *")
    if lib.ghostty_render_state_new(ffi.NULL, state):
        return
    try:
        if lib.ghostty_render_state_row_iterator_new(ffi.NULL, rows):
            return
        lib.ghostty_render_state_update(state[0], terminal)
        lib.ghostty_render_state_get(state[0], lib.GHOSTTY_RENDER_STATE_DATA_ROW_ITERATOR, rows)
        while lib.ghostty_render_state_row_iterator_next(rows[0]):
            lib.ghostty_render_state_row_get(
                rows[0], lib.GHOSTTY_RENDER_STATE_ROW_DATA_CELLS_RAW, view
            )
            words = struct.unpack(f"<{view.len}Q", ffi.buffer(view.ptr, 8 * view.len))
            yield [word >> 42 & 3 for word in words]
        lib.ghostty_render_state_row_iterator_free(rows[0])
    finally:
        lib.ghostty_render_state_free(state[0])


def _halves(widths: list[int]) -> Iterator[int]:
    for x, width in enumerate(widths):
        after = widths[x + 1] if x + 1 < len(widths) else _NARROW
        before = widths[x - 1] if x else _NARROW
        if (
            (width == _WIDE and after != _TAIL)
            or (width == _TAIL and before != _WIDE)
            or (width == _HEAD)
        ):
            yield x


def _get(ffi: Any, lib: Any, terminal: Any, key: int, kind: str) -> int:
    out = ffi.new(f"{kind} *")
    lib.ghostty_terminal_get(terminal, key, out)
    return int(out[0])


def _write(lib: Any, terminal: Any, data: bytes) -> None:
    lib.ghostty_terminal_vt_write(terminal, data, len(data))


class ScrolledOff(NamedTuple):
    """Output that certainly scrolls off the screen, and the bytes to feed in its place."""

    size: int
    substitute: bytes


def no_margins(rows: int) -> bytes:
    """Return the reply to `MARGINS_QUERY` by a terminal without margins."""
    return b"\x1bP1$r1;%dr\x1b\\\x1bP0$r\x1b\\" % rows


def find_scrolled_off(data: bytes, rows: int) -> ScrolledOff | None:
    """Return the beginning of simple output that scrolls off a screen of `rows` rows, if any."""
    # The caller checks that it does not begin within a sequence and that no margins are set.
    size = len(data)
    for _ in range(2 * rows + 1):
        size = data.rfind(simple_output.LINE_END, 0, size)
        if size <= 0:
            return None
    size += len(simple_output.LINE_END)
    if not simple_output.SGR.sub(b"", data[size:]).translate(None, b"\t\r\n"):
        return None
    pen = []
    if b"\x1b" in data:
        reset = max(data.rfind(sequence, 0, size) for sequence in _RESETS)
        pen = simple_output.SGR.findall(data, max(0, reset), size)
    return ScrolledOff(size, simple_output.LINE_END + b"".join(pen))


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

    def _scrolled_off(self, data: bytes) -> ScrolledOff | None:
        if self._terminal is None or self._tail:
            return None
        library = native()
        _, rows = library.size(self._terminal)
        found = find_scrolled_off(data, rows)
        if found is None or not library.is_ground(self._terminal):
            return None
        with self._at_work:
            answer = library.ask(self._terminal, MARGINS_QUERY)
        return found if answer == no_margins(rows) else None

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
