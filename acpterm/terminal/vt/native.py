"""Calls of libghostty-vt: creates native terminals with their options and callbacks.

A *native terminal* is a terminal object of libghostty-vt. All share the callbacks, because each
callback takes memory. A callback is passed the address of the native terminal that is being fed, by
which it finds that terminal's `Feeding`.

A grammar restricts the replies that a program may get to numbers, states, colours and fixed text;
all other replies are dropped. Programs read a reply as if the user had typed it. So a hostile file
whose content a program prints must not be able to choose the text of a reply. Therefore no reply
contains titles, the answerback, the clipboard, identifiers of requests (OSC 5522, 99), names of
capabilities (XTGETTCAP) or unknown settings (DECRQSS).
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any, Final

from acpterm import __version__
from acpterm.terminal.vt.library import Library, load

# The maximum number of columns, and of rows: the library stores them in 16 bits.
SIZE_MAX: Final = 65_535
REPLIES_MAX_BYTES: Final = 64 * 1024
# The number of bytes of an incomplete sequence that the library stores for snapshots. The option is
# set twice: the library allocates the first value at once, and up to the second value on demand.
_HELD_FIRST_BYTES: Final = 1
_HELD_MAX_BYTES: Final = 2 * 1024 * 1024
_APC_MAX_BYTES: Final = 64 * 1024

VERSION: Final = f"acpterm({__version__})"
CELL_SIZE: Final = (8, 16)  # pixels
FOREGROUND: Final = 0xD0D0D0
BACKGROUND: Final = 0x1C1C1C

# Device attributes: DA1 is a VT220 with colours, DA2 a VT220 as well, and DA3 has unit id 0.
CONFORMANCE_LEVEL: Final = 62
ANSI_COLOUR_FEATURE: Final = 22
DEVICE_TYPE: Final = 1
FIRMWARE_VERSION: Final = 10

_NUMBER: Final = rb"[0-9]{1,5}"
_COLOUR: Final = rb"rgb:[0-9a-f]{4}/[0-9a-f]{4}/[0-9a-f]{4}"
_REPLY: Final = b"|".join(
    (
        # CPR (position of the cursor); DSR (status); the dark or light colour scheme.
        rb"\x1b\[%b;%bR" % (_NUMBER, _NUMBER),
        rb"\x1b\[0n",
        rb"\x1b\[\?997;[12]n",
        # DA1, DA2, DA3.
        rb"\x1b\[\?%d;%dc" % (CONFORMANCE_LEVEL, ANSI_COLOUR_FEATURE),
        rb"\x1b\[>%d;%d;0c" % (DEVICE_TYPE, FIRMWARE_VERSION),
        rb"\x1bP!\|00000000\x1b\\",
        # DECRPM (state of a mode); kitty's keyboard flags.
        rb"\x1b\[\??%b;[0-4]\$y" % _NUMBER,
        rb"\x1b\[\?[0-9]{1,2}u",
        # The terminal size in pixels, the cell size in pixels, the terminal size in cells; and all
        # of these with mode 2048. Then the reply to XTVERSION.
        rb"\x1b\[[468];%b;%bt" % (_NUMBER, _NUMBER),
        rb"\x1b\[48(?:;[0-9]{1,7}){4}t",
        rb"\x1bP>\|%b\x1b\\" % re.escape(VERSION.encode()),
        # Colours.
        rb"\x1b\](?:4;[0-9]{1,3}|1[0-9]);%b(?:\a|\x1b\\)" % _COLOUR,
        # DECRPSS of a known setting: SGR, DECSTBM, DECSLRM, DECSCUSR; then of an unknown one.
        rb"\x1bP1\$r[0-9;:]{0,128}(?:m|r|s| q)\x1b\\",
        rb"\x1bP0\$r\x1b\\",
    )
)
_REPLIES: Final = re.compile(rb"(?:%b)+" % _REPLY)


def is_allowed(reply: bytes) -> bool:
    """Return whether a program may get `reply`: one or more replies of the forms above."""
    return _REPLIES.fullmatch(reply) is not None


class Feeding:
    """What the callbacks need during one call that feeds or resizes a native terminal."""

    __slots__ = ("cols", "is_own_query", "replies", "rows")

    def __init__(self, cols: int, rows: int, *, is_own_query: bool = False) -> None:
        self.cols = cols
        self.rows = rows
        self.replies = bytearray()
        #: Whether the queries come from `Native.ask`, and not from the program.
        self.is_own_query = is_own_query


#: The `Feeding` of each native terminal that is being fed or resized, by the terminal's address.
feeding_by_address: Final[dict[int, Feeding]] = {}


class Native:
    """The calls of libghostty-vt. There is only one, so that all terminals share the callbacks."""

    def __init__(self, library: Library) -> None:
        ffi, lib = library
        self.ffi: Final = ffi
        self.lib: Final = lib
        self.check: Final = library.check
        self.colour: Final = ffi.typeof("GhosttyColorRgb *")
        self._size: Final = ffi.new("uint16_t[2]")
        version = ffi.new("char[]", VERSION.encode())
        text = ffi.new("GhosttyString *")
        text.ptr, text.len = ffi.cast("uint8_t *", version), len(VERSION)
        self._kept: Final = version, text

        def on_reply(terminal: Any, _data: Any, reply: Any, size: int) -> None:
            feeding = feeding_by_address.get(int(ffi.cast("uintptr_t", terminal)))
            if feeding is not None and len(feeding.replies) + size <= REPLIES_MAX_BYTES:
                data = bytes(ffi.buffer(reply, size))
                if feeding.is_own_query or is_allowed(data):
                    feeding.replies += data

        def on_size(terminal: Any, _data: Any, out: Any) -> bool:
            feeding = feeding_by_address.get(int(ffi.cast("uintptr_t", terminal)))
            if feeding is None:
                return False
            out.columns = min(feeding.cols, SIZE_MAX)
            out.rows = min(feeding.rows, SIZE_MAX)
            out.cell_width, out.cell_height = CELL_SIZE
            return True

        def on_attributes(_terminal: Any, _data: Any, out: Any) -> bool:
            out.primary.conformance_level = CONFORMANCE_LEVEL
            out.primary.features[0] = ANSI_COLOUR_FEATURE
            out.primary.num_features = 1
            out.secondary.device_type = DEVICE_TYPE
            out.secondary.firmware_version = FIRMWARE_VERSION
            out.secondary.rom_cartridge = out.tertiary.unit_id = 0
            return True

        def on_scheme(_terminal: Any, _data: Any, out: Any) -> bool:
            out[0] = lib.GHOSTTY_COLOR_SCHEME_DARK
            return True

        callback = ffi.callback
        limit = ffi.new("uint64_t *", 0)
        ink, ground = _colour(FOREGROUND), _colour(BACKGROUND)
        #: The options of every native terminal.
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
            # Disable images and glyphs: nothing shows them, and they take memory.
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
        """Return a new native terminal, which is freed when it is garbage-collected."""
        holder = self.ffi.new("GhosttyTerminal *")
        self.check(self.lib.ghostty_terminal_new(self.ffi.NULL, holder, cols, rows), "new")
        return self._owned(holder)

    def restore(self, data: bytes) -> Any:
        """Return a terminal in a state that `dump` returned; None for another version's."""
        lib, decoder = self.lib, self.ffi.new("GhosttySnapshotDecoder *")
        buffer = self.ffi.from_buffer("uint8_t[]", data)
        new = lib.ghostty_snapshot_decoder_new_buf(self.ffi.NULL, decoder, buffer, len(data))
        self.check(new, "decoder")
        try:
            holder = self.ffi.new("GhosttyTerminal *")
            if lib.ghostty_snapshot_decoder_decode(decoder[0], holder):
                return None
        finally:
            lib.ghostty_snapshot_decoder_free(decoder[0])
        return self._owned(holder)

    def _owned(self, holder: Any) -> Any:
        terminal = self.ffi.gc(holder[0], self.lib.ghostty_terminal_free)
        for option, value in self.options:
            self.check(self.lib.ghostty_terminal_set(terminal, option, value), "set")
        return terminal

    def address(self, terminal: Any) -> int:
        return int(self.ffi.cast("uintptr_t", terminal))

    def size(self, terminal: Any) -> tuple[int, int]:
        lib, out = self.lib, self._size
        lib.ghostty_terminal_get(terminal, lib.GHOSTTY_TERMINAL_DATA_COLS, out)
        lib.ghostty_terminal_get(terminal, lib.GHOSTTY_TERMINAL_DATA_ROWS, out + 1)
        return out[0], out[1]

    def is_ground(self, terminal: Any) -> bool:
        """Return whether the output fed so far ends outside of escape sequences."""
        out = self.ffi.new("bool *")
        self.lib.ghostty_terminal_get(terminal, self.lib.GHOSTTY_TERMINAL_DATA_VT_GROUND, out)
        return bool(out[0])

    def ask(self, terminal: Any, query: bytes) -> bytes:
        """Return the reply to a query of acpterm itself; the program does not get it."""
        address = self.address(terminal)
        feeding_by_address[address] = feeding = Feeding(0, 0, is_own_query=True)
        try:
            self.lib.ghostty_terminal_vt_write(terminal, query, len(query))
        finally:
            del feeding_by_address[address]
        return bytes(feeding.replies)

    def resize(self, terminal: Any, cols: int, rows: int) -> None:
        cell = CELL_SIZE
        self.check(self.lib.ghostty_terminal_resize(terminal, cols, rows, *cell), "resize")

    def dump(self, terminal: Any) -> bytes | None:
        """Return the state as a binary snapshot.

        None if the library cannot encode it: an incomplete sequence is longer than it stores, or a
        wide character is cut in half.
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
def native() -> Native:
    """Return the only `Native`. Raises `EmulatorMissingError`."""
    return Native(load())
