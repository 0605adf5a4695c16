"""Parse libghostty's binary snapshot (format version 1) of a native terminal's whole state.

The format is documented in libghostty's `snapshot.h`; integers are little-endian. A header with a
magic number is followed by records of a tag, a length, a checksum and a payload: one TERMINAL; for
each screen a SCREEN and its PAGEs; CONTINUATION, the bytes of an incomplete sequence; READY; and
then the PAGEs of the scrollback, newest first. The checksums are not verified, since the bytes come
from this process.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from acpterm.terminal.vt.page import Page, link_at, style_of
from acpterm.terminal.vt.style import PLAIN, Style, with_link

_MAGIC: Final = b"GHOSTSNP\x01\x00"
_RECORD: Final = Struct("<HII")
_TERMINAL_TAG, _SCREEN_TAG, _PAGE_TAG, _READY_TAG, _CONTINUATION_TAG = 1, 2, 3, 5, 7
# Columns, rows, width and height in pixels, the four margins, status display, active screen, number
# of screens, last character, whether the cursor is the default one, 3 bytes, whether
# modifyOtherKeys is 2, mouse event, mouse format, 3 bytes, modes. The rest is not used.
_TERMINAL: Final = Struct("<HHIIHHHHBHHIB3xBBB3xQ56x")
_PALETTE_BYTES: Final = 256 * 3
_PALETTE_MASK_BYTES: Final = 32
# Key of the screen, number of pages, rows of scrollback, column and row of the cursor, cursor
# style, flags, pen, 4 bytes, character sets, 1 byte, index and entries of the stack of keyboard
# flags, 2 bytes, whether a cursor is saved.
_SCREEN: Final = Struct("<HHQHHBB16s4xHxB8s2xB")
# Column, row, pen, flags, character sets.
_SAVED: Final = Struct("<HH16sBH")
_U16: Final = Struct("<H")
_U32: Final = Struct("<I")
# The mode of each bit of `modes`, from bit 0 on: private modes, and ANSI modes as negative numbers.
_MODES: Final = (
    *(-2, -4, -12, -20, 1, 3, 4, 5, 6, 7, 8, 9, 12, 25, 40, 45, 47, 66, 67, 69, 1000, 1002, 1003),
    *(1004, 1005, 1006, 1007, 1015, 1016, 1035, 1036, 1039, 1045, 1047, 1048, 1049, 2004, 2026),
    *(2027, 2031, 2033, 2048, 5522),
)
_MOUSE_EVENTS: Final = (0, 9, 1000, 1002, 1003)
_MOUSE_FORMATS: Final = (0, 1005, 1006, 1015, 1016)
IRM: Final = -4
LNM: Final = -20


class DumpError(Exception):
    """A snapshot of libghostty-vt is not in the expected format."""


class Charsets(NamedTuple):
    """The character sets of G0 to G3: 0 UTF-8, 1 ASCII, 2 British, 3 DEC Special Graphics."""

    sets: tuple[int, int, int, int]
    gl: int  # the slot in use


class Saved(NamedTuple):
    """The cursor that a program has saved by DECSC."""

    x: int  # the screen's width if the next character goes to the next row
    y: int
    pen: Style
    origin: bool  # DECOM
    charsets: Charsets


NOTHING_SAVED: Final = Saved(0, 0, PLAIN, False, Charsets((0, 0, 0, 0), 0))


class ScreenState:
    """The main or the alternate screen, parsed from the payload of its SCREEN record."""

    __slots__ = ("charsets", "keys", "pages", "pen", "saved", "shape", "wraps", "x", "y")

    def __init__(self, payload: memoryview) -> None:
        (
            _key,
            _pages,
            _history,
            self.x,
            self.y,
            self.shape,
            flags,
            pen,
            charsets,
            index,
            stack,
            has_saved,
        ) = _SCREEN.unpack_from(payload)
        self.wraps: bool = bool(flags & 1)
        self.pen: Style = style_of(pen)
        self.charsets = _charsets(charsets)
        self.keys = _stack(index, stack)
        at = _SCREEN.size
        self.saved: Saved | None = None
        if has_saved:
            x, y, saved_pen, flags, saved_charsets = _SAVED.unpack_from(payload, at)
            at += _SAVED.size
            # Bit 1 is set if the next character wraps.
            x += flags >> 1 & 1
            self.saved = Saved(
                x, y, style_of(saved_pen), bool(flags & 4), _charsets(saved_charsets)
            )
        if payload[at]:
            link, _ = link_at(payload, at)
            self.pen = with_link(self.pen, link)
        self.pages: list[Page] = []


class Dump:
    """The state of a native terminal. Raises `DumpError` if `data` has another format."""

    # `screens` has the main screen as 0 and the alternate one, if used, as 1; `active` is shown.
    # `modes` are those that are set, ANSI modes as negative numbers; `mouse_event` and
    # `mouse_format` are modes too, or 0.

    def __init__(self, data: bytes) -> None:
        if not data.startswith(_MAGIC):
            raise DumpError(f"the emulator's snapshot begins with {data[:10]!r}, not {_MAGIC!r}")
        view = memoryview(data)
        self.screens: dict[int, ScreenState] = {}
        #: The bytes so far of an incomplete sequence or character.
        self.held = b""
        scrollback: list[Page] = []
        is_ready = False
        at = len(_MAGIC)
        screen: ScreenState | None = None
        while at < len(data):
            tag, length, _ = _RECORD.unpack_from(data, at)
            at += _RECORD.size
            payload = view[at : at + length]
            at += length
            if tag == _TERMINAL_TAG:
                self._terminal(payload)
            elif tag == _SCREEN_TAG:
                screen = self.screens[_U16.unpack_from(payload)[0]] = ScreenState(payload)
            elif tag == _PAGE_TAG and is_ready:
                scrollback.append(Page(payload))
            elif tag == _PAGE_TAG and screen is not None:
                screen.pages.append(Page(payload))
            elif tag == _CONTINUATION_TAG:
                self.held = bytes(payload)
            elif tag == _READY_TAG:
                is_ready = True
        if not is_ready:
            raise DumpError("the emulator's snapshot ends before its READY record")
        #: The pages of the main screen's scrollback, oldest first. More of it is at the beginning
        #: of the screen's own `pages`.
        self.scrollback: Final = scrollback[::-1]

    def _terminal(self, payload: memoryview) -> None:
        (
            self.cols,
            self.rows,
            _width,
            _height,
            self.top,
            self.bottom,
            self.left,
            self.right,
            _status,
            self.active,
            _count,
            last,
            self.is_default_cursor,
            level,
            event,
            style,
            modes,
        ) = _TERMINAL.unpack_from(payload)
        self.last: str = chr(last) if last <= 0x10FFFF else ""
        self.has_other_keys: bool = bool(level)
        self.mouse_event: int = _MOUSE_EVENTS[event] if event < len(_MOUSE_EVENTS) else 0
        self.mouse_format: int = _MOUSE_FORMATS[style] if style < len(_MOUSE_FORMATS) else 0
        self.modes: frozenset[int] = frozenset(
            number for bit, number in enumerate(_MODES) if modes >> bit & 1
        )
        at = _TERMINAL.size
        tabs = int.from_bytes(payload[at : at + (self.cols + 7) // 8], "little")
        self.tabs: tuple[int, ...] = tuple(x for x in range(self.cols) if tabs >> x & 1)
        at += (self.cols + 7) // 8 + _PALETTE_BYTES
        mask = int.from_bytes(payload[at : at + _PALETTE_MASK_BYTES], "little")
        at += _PALETTE_MASK_BYTES + 3 * mask.bit_count()
        (length,) = _U32.unpack_from(payload, at)
        at += 4 + length
        (length,) = _U32.unpack_from(payload, at)
        self.title: str = bytes(payload[at + 4 : at + 4 + length]).decode(errors="replace")


def _charsets(packed: int) -> Charsets:
    sets = (packed & 3, packed >> 2 & 3, packed >> 4 & 3, packed >> 6 & 3)
    return Charsets(sets, packed >> 8 & 3)


def _stack(index: int, flags: bytes) -> tuple[int, ...]:
    """Return kitty's stack of flags, oldest first, from the library's circular buffer."""
    index &= 7
    if any(flags[index + 1 :]):
        # The stack has overflowed, so the oldest entries come after the newest.
        return tuple(flags[index + 1 :] + flags[: index + 1])
    return tuple(flags[: index + 1])


def rows_of(state: ScreenState, rows: int) -> list[tuple[Page, int]]:
    """Return the last rows of a screen: each its page, and its index in the page."""
    found = [(page, y) for page in state.pages for y in range(len(page))]
    return found[len(found) - rows :] if len(found) >= rows else found
