"""The adapter around libghostty-vt: one emulator per terminal, always fed.

States and rules:

- *idle*: nothing was fed. The native terminal is made with the first byte, or for the first
  picture, so that a terminal that prints nothing costs nothing.
- *live*: fed. Every query is answered once, by `on_reply`, after the call that found it. An answer
  is a number, a state or fixed text (see `replies`), and of one call at most `REPLIES_MAX` bytes.
- *closed*: it takes nothing more.

Sizes: the native terminal has at least `SIZE_MIN` columns and rows (with fewer it has crashed), so
a smaller window shows a part of it. In windows of more than `LINKS_CELLS_MAX` cells there are no
hyperlinks: the library ends the process when it runs out of room for those of one page. While a
window has more than `CELLS_MAX` cells the emulator keeps its size, and no picture is given. A
program cannot change the size (DECCOLM).

Where the library is missing, nothing is emulated: `screen` raises `EmulatorMissingError`.

A crash of the library ends the process. `at_work` is entered around each call that could crash, so
that the next process can tell which terminal was being emulated; `broken.BrokenEmulator` takes the
place of an emulator for it.
"""

from __future__ import annotations

import time
from contextlib import nullcontext, suppress
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from acpterm.terminal.vt import replies, scrolled_off
from acpterm.terminal.vt.dump import Dump
from acpterm.terminal.vt.library import EmulatorMissingError, Library, load
from acpterm.terminal.vt.repair import repair
from acpterm.terminal.vt.screen import Screen

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

CELLS_MAX: Final = 1_000_000
SIZE_MIN: Final = 2
LINKS_CELLS_MAX: Final = 32 * 1024
"""Cells of a window in which hyperlinks (OSC 8) are known."""
# Makes OSC 8 one that is unknown.
_LINK: Final = b"\x1b]8;"
_NO_LINK: Final = b"\x1b]8777;"
# The native terminal counts in 16 bits.
_SIZE_MAX: Final = 65_535
REPLIES_MAX: Final = 64 * 1024
# Bytes that `feed_for` feeds between two looks at the clock.
_STEP_FIRST_BYTES: Final = 512
_STEP_MAX_BYTES: Final = 64 * 1024
_STEP_MIN_BYTES: Final = 16
# Input of an incomplete sequence that is kept for pictures. The library allocates what it is first
# told, and up to the second as it is needed.
_HELD_FIRST_BYTES: Final = 1
_HELD_MAX_BYTES: Final = 2 * 1024 * 1024
_APC_MAX_BYTES: Final = 64 * 1024
_CANCEL: Final = b"\x18"
_RESET: Final = b"\x1bc"

OnReply: TypeAlias = "Callable[[bytes], object]"
Data: TypeAlias = bytes | bytearray | memoryview


class ScreenTooLargeError(Exception):
    """The window has more cells than are emulated."""

    def __init__(self, cols: int, rows: int) -> None:
        super().__init__(
            f"a screen of {cols} columns and {rows} rows is too large: "
            f"make the terminal one of at most {CELLS_MAX} cells, or ask for text or raw"
        )


def check_size(cols: int, rows: int) -> None:
    """Raise `ScreenTooLargeError` unless a window of this size can be emulated."""
    if cols * rows > CELLS_MAX or max(cols, rows) > _SIZE_MAX:
        raise ScreenTooLargeError(cols, rows)


class _Feeding:
    """What callbacks need to know of the emulator that is being fed, and what they collect."""

    __slots__ = ("cols", "is_own_query", "replies", "rows")

    def __init__(self, cols: int, rows: int, *, is_own_query: bool = False) -> None:
        self.cols = cols
        self.rows = rows
        self.replies = bytearray()
        #: Whether it was not the program that asks.
        self.is_own_query = is_own_query


#: By the address of the native terminal.
_feeding: Final[dict[int, _Feeding]] = {}


class _Native:
    """The library with callbacks that are shared by all terminals, and memory for arguments."""

    def __init__(self, library: Library) -> None:
        ffi, lib = library
        self.ffi: Final = ffi
        self.lib: Final = lib
        self.check: Final = library.check
        self.colour: Final = ffi.typeof("GhosttyColorRgb *")
        self._size: Final = ffi.new("uint16_t[2]")
        version = ffi.new("char[]", replies.VERSION.encode())
        text = ffi.new("GhosttyString *")
        text.ptr, text.len = ffi.cast("uint8_t *", version), len(replies.VERSION)
        self._kept: Final = version, text

        def on_reply(terminal: Any, _data: Any, reply: Any, size: int) -> None:
            feeding = _feeding.get(int(ffi.cast("uintptr_t", terminal)))
            if feeding is not None and len(feeding.replies) + size <= REPLIES_MAX:
                data = bytes(ffi.buffer(reply, size))
                if feeding.is_own_query or replies.is_allowed(data):
                    feeding.replies += data

        def on_size(terminal: Any, _data: Any, out: Any) -> bool:
            feeding = _feeding.get(int(ffi.cast("uintptr_t", terminal)))
            if feeding is None:
                return False
            out.columns = min(feeding.cols, _SIZE_MAX)
            out.rows = min(feeding.rows, _SIZE_MAX)
            out.cell_width, out.cell_height = replies.CELL_SIZE
            return True

        def on_attributes(_terminal: Any, _data: Any, out: Any) -> bool:
            out.primary.conformance_level = replies.CONFORMANCE_LEVEL
            out.primary.features[0] = replies.ANSI_COLOUR_FEATURE
            out.primary.num_features = 1
            out.secondary.device_type = replies.DEVICE_TYPE
            out.secondary.firmware_version = replies.FIRMWARE_VERSION
            out.secondary.rom_cartridge = out.tertiary.unit_id = 0
            return True

        def on_scheme(_terminal: Any, _data: Any, out: Any) -> bool:
            out[0] = lib.GHOSTTY_COLOR_SCHEME_DARK
            return True

        callback = ffi.callback
        limit = ffi.new("uint64_t *", 0)
        ink, ground = _colour(replies.FOREGROUND), _colour(replies.BACKGROUND)
        #: What every terminal is given.
        self.options: Final = (
            (lib.GHOSTTY_TERMINAL_OPT_WRITE_PTY, callback("GhosttyTerminalWritePtyFn", on_reply)),
            (lib.GHOSTTY_TERMINAL_OPT_SIZE, callback("GhosttyTerminalSizeFn", on_size)),
            (
                lib.GHOSTTY_TERMINAL_OPT_DEVICE_ATTRIBUTES,
                callback("GhosttyTerminalDeviceAttributesFn", on_attributes),
            ),
            (
                lib.GHOSTTY_TERMINAL_OPT_COLOR_SCHEME,
                callback("GhosttyTerminalColorSchemeFn", on_scheme),
            ),
            (
                lib.GHOSTTY_TERMINAL_OPT_XTVERSION,
                callback("GhosttyTerminalXtversionFn", lambda _terminal, _data: text[0]),
            ),
            (lib.GHOSTTY_TERMINAL_OPT_COLOR_FOREGROUND, ffi.new("GhosttyColorRgb *", ink)),
            (lib.GHOSTTY_TERMINAL_OPT_COLOR_BACKGROUND, ffi.new("GhosttyColorRgb *", ground)),
            (lib.GHOSTTY_TERMINAL_OPT_COLOR_CURSOR, ffi.new("GhosttyColorRgb *", ink)),
            (lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_BYTES, ffi.new("size_t *", 0)),
            (lib.GHOSTTY_TERMINAL_OPT_SCROLLBACK_MAX_LINES, ffi.new("size_t *", 0)),
            # Neither pictures nor glyphs: nothing shows them, and they cost memory.
            (lib.GHOSTTY_TERMINAL_OPT_KITTY_IMAGE_STORAGE_LIMIT, limit),
            (lib.GHOSTTY_TERMINAL_OPT_GLYPH_PROTOCOL, ffi.new("bool *", False)),
            (lib.GHOSTTY_TERMINAL_OPT_APC_MAX_BYTES, ffi.new("size_t *", _APC_MAX_BYTES)),
            (
                lib.GHOSTTY_TERMINAL_OPT_CONTINUATION_MAX_BYTES,
                ffi.new("size_t *", _HELD_FIRST_BYTES),
            ),
            (lib.GHOSTTY_TERMINAL_OPT_CONTINUATION_MAX_BYTES, ffi.new("size_t *", _HELD_MAX_BYTES)),
        )

    def new(self, cols: int, rows: int) -> Any:
        """Return a new native terminal; it is freed when it is collected."""
        holder = self.ffi.new("GhosttyTerminal *")
        self.check(self.lib.ghostty_terminal_new(self.ffi.NULL, holder, cols, rows), "new")
        terminal = self.ffi.gc(holder[0], self.lib.ghostty_terminal_free)
        for option, value in self.options:
            self.check(self.lib.ghostty_terminal_set(terminal, option, value), "set")
        return terminal

    def address(self, terminal: Any) -> int:
        """Return what callbacks know a terminal by."""
        return int(self.ffi.cast("uintptr_t", terminal))

    def size(self, terminal: Any) -> tuple[int, int]:
        """Return the native terminal's columns and rows."""
        lib, out = self.lib, self._size
        lib.ghostty_terminal_get(terminal, lib.GHOSTTY_TERMINAL_DATA_COLS, out)
        lib.ghostty_terminal_get(terminal, lib.GHOSTTY_TERMINAL_DATA_ROWS, out + 1)
        return out[0], out[1]

    def is_ground(self, terminal: Any) -> bool:
        """Return whether no sequence is incomplete."""
        out = self.ffi.new("bool *")
        self.lib.ghostty_terminal_get(terminal, self.lib.GHOSTTY_TERMINAL_DATA_VT_GROUND, out)
        return bool(out[0])

    def ask(self, terminal: Any, query: bytes) -> bytes:
        """Return the terminal's answer to a query of ours."""
        address = self.address(terminal)
        _feeding[address] = feeding = _Feeding(0, 0, is_own_query=True)
        try:
            self.lib.ghostty_terminal_vt_write(terminal, query, len(query))
        finally:
            del _feeding[address]
        return bytes(feeding.replies)

    def resize(self, terminal: Any, cols: int, rows: int) -> None:
        """Change the native terminal's size."""
        cell = replies.CELL_SIZE
        self.check(self.lib.ghostty_terminal_resize(terminal, cols, rows, *cell), "resize")

    def dump(self, terminal: Any) -> bytes | None:
        """Return the terminal's state in the library's format.

        Return None if the library cannot: there is more of an incomplete sequence than it has
        kept, or half of a wide character.
        """
        data, size = self.ffi.new("uint8_t **"), self.ffi.new("size_t *")
        result = self.lib.ghostty_snapshot_encode_alloc(terminal, self.ffi.NULL, data, size)
        if result == self.lib.GHOSTTY_INVALID_VALUE:
            return None
        self.check(result, "snapshot")
        try:
            return bytes(self.ffi.buffer(data[0], size[0]))
        finally:
            self.lib.ghostty_free(self.ffi.NULL, data[0], size[0])


def _colour(number: int) -> tuple[int, int, int]:
    return number >> 16, number >> 8 & 255, number & 255


@cache
def _native() -> _Native:
    return _Native(load())


def preload() -> None:
    """Load the library, if there is one: it takes some 60 ms, and no terminal has to wait."""
    with suppress(EmulatorMissingError):
        _native()


class Emulator:
    """The emulator of a terminal of `cols` columns and `rows` rows, both 1 or more.

    `on_reply` is called with what the terminal answers; `at_work` is entered around native calls
    and has to be reusable. Raises `ValueError` for a size of nothing.
    """

    __slots__ = ("_at_work", "_cols", "_is_closed", "_on_reply", "_rows", "_tail", "_terminal")

    #: Whether it is a `broken.BrokenEmulator`.
    is_broken: Final = False

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
        # The beginning of a hyperlink that was fed last, in a large window.
        self._tail = b""
        self._is_closed = False

    @property
    def size(self) -> tuple[int, int]:
        """Columns and rows."""
        return self._cols, self._rows

    @property
    def is_available(self) -> bool:
        """Whether there is a library that emulates."""
        try:
            load()
        except EmulatorMissingError:
            return False
        return True

    def feed(self, data: Data) -> None:
        """Emulate what the program wrote next; call `on_reply` with the answers, if any."""
        if not len(data) or self._is_closed:
            return
        try:
            terminal = self._live()
        except EmulatorMissingError:
            return
        native = _native()
        address = native.address(terminal)
        _feeding[address] = feeding = _Feeding(self._cols, self._rows)
        if self._tail or self._cols * self._rows > LINKS_CELLS_MAX:
            data = self._without_links(data)
        try:
            with self._at_work:
                buffer = native.ffi.from_buffer("uint8_t[]", data)
                native.lib.ghostty_terminal_vt_write(terminal, buffer, len(data))
                size = self._native_size()
                if size is not None and native.size(terminal) != size:
                    # The program changed it.
                    native.resize(terminal, *size)
        finally:
            del _feeding[address]
        if feeding.replies and self._on_reply is not None:
            self._on_reply(bytes(feeding.replies))

    def _without_links(self, data: Data) -> bytes:
        """Return `data` with hyperlinks that the library does not know; they may be cut."""
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
        """Feed of `data` what can be fed in some time, at least a step; return how much it was."""
        return self._feed_for(data, 0, time.monotonic() + seconds)

    def feed_simple_for(self, data: bytes, seconds: float) -> int:
        """Feed simple output (`simple_output`) as `feed_for` does; what is out of sight is free."""
        end = time.monotonic() + seconds
        fed = 0
        if (hidden := self._scrolled_off(data)) is not None:
            self.feed(hidden.substitute)
            fed = hidden.size
        return self._feed_for(memoryview(data), fed, end)

    def _feed_for(self, data: memoryview, fed: int, end: float) -> int:
        """Feed `data` from the byte `fed` on, until the time `end`; return where that stops."""
        now = time.monotonic()
        step = _STEP_FIRST_BYTES
        # A few bytes can have all cells redrawn, or one repeated 65,535 times.
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
        """Return what of `data` need not be fed, if that is certain; see `scrolled_off`."""
        if self._terminal is None or self._tail:
            return None
        native = _native()
        _, rows = native.size(self._terminal)
        found = scrolled_off.find(data, rows)
        if found is None or not native.is_ground(self._terminal):
            return None
        with self._at_work:
            answer = native.ask(self._terminal, scrolled_off.MARGINS_QUERY)
        return found if answer == scrolled_off.no_margins(rows) else None

    def resize(self, cols: int, rows: int) -> None:
        """Change the window's size; what was fed before was for the size before.

        Raises `ValueError` for a size of nothing.
        """
        _check(cols, rows)
        self._cols, self._rows = cols, rows
        size = self._native_size()
        if self._terminal is None or self._is_closed or size is None:
            return
        native = _native()
        address = native.address(self._terminal)
        _feeding[address] = feeding = _Feeding(cols, rows)
        try:
            with self._at_work:
                if native.size(self._terminal) != size:
                    native.resize(self._terminal, *size)
        finally:
            del _feeding[address]
        if feeding.replies and self._on_reply is not None:
            self._on_reply(bytes(feeding.replies))

    def screen(self) -> Screen:
        """Return a picture of what the window shows now.

        Raises `ScreenTooLargeError` while the window is too large, `EmulatorMissingError` where
        there is no emulator.
        """
        check_size(self._cols, self._rows)
        if self._is_closed:
            raise RuntimeError("the emulator is closed")
        terminal = self._live()
        native = _native()
        with self._at_work:
            data = native.dump(terminal)
            if data is None:
                # A sequence has become longer than is kept: it is over. Or a character was cut.
                if not native.is_ground(terminal):
                    native.lib.ghostty_terminal_vt_write(terminal, _CANCEL, len(_CANCEL))
                repair(native.ffi, native.lib, terminal)
                data = native.dump(terminal)
            if data is None:
                # Better a screen that the program has to paint again than none ever after.
                native.lib.ghostty_terminal_vt_write(terminal, _RESET, len(_RESET))
                data = native.dump(terminal)
        if data is None:
            raise RuntimeError("libghostty: no snapshot of the terminal")
        return Screen(Dump(data), self._cols, self._rows)

    def close(self) -> None:
        """Free the native terminal. Can be repeated."""
        self._is_closed = True
        terminal, self._terminal = self._terminal, None
        if terminal is not None:
            _native().ffi.release(terminal)

    def _live(self) -> Any:
        """Return the native terminal, made now if there is none."""
        if self._terminal is None:
            load()
            native = _native()
            # A window that is too large is emulated as a small one.
            cols, rows = self._native_size() or (80, 24)
            with self._at_work:
                self._terminal = native.new(cols, rows)
        return self._terminal

    def _native_size(self) -> tuple[int, int] | None:
        """Return the size of the native terminal; None if it is to stay as it is."""
        try:
            check_size(self._cols, self._rows)
        except ScreenTooLargeError:
            return None
        return max(SIZE_MIN, self._cols), max(SIZE_MIN, self._rows)


def _check(cols: int, rows: int) -> None:
    if cols < 1 or rows < 1:
        raise ValueError(f"a screen has at least 1 column and 1 row, not {cols} by {rows}")
