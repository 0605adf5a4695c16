"""The state of a native terminal, parsed from libghostty's binary snapshot (format version 1).

A *native terminal* is a terminal object of libghostty-vt.

The format is documented in libghostty's `snapshot.h`; integers are little-endian. An envelope is
followed by records of a tag, a length, a checksum and a payload: one TERMINAL, then per screen one
SCREEN and its PAGEs, then CONTINUATION (input of a sequence that is not complete), READY, and the
scrollback, which is not used here. The checksum is not verified: the bytes come from this process.

Rows are decoded on demand. A page's row is a sequence of words:

    bits 0-1 kind, 2-25 content, 26-41 style, 42-43 width, 48-63 hyperlink
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from acpterm.terminal.vt import style as styles
from acpterm.terminal.vt.style import DEFAULT, PLAIN, RGB, Cell, Style, with_link

MARKS_MAX: Final = 8
"""Maximum number of combining characters kept per cell, more than any script needs."""
ADDRESS_MAX: Final = 2083
"""Maximum length in bytes of a hyperlink's address, as in VTE; a longer link is ignored."""
_PARAMETERS_MAX: Final = 250

_MAGIC: Final = b"GHOSTSNP\x01\x00"
_RECORD: Final = Struct("<HII")
_TERMINAL_TAG, _SCREEN_TAG, _PAGE_TAG, _READY_TAG, _CONTINUATION_TAG = 1, 2, 3, 5, 7
# Columns, rows, pixels (2), region (4), status, active screen, screens, last character, cursor is
# default, (3), modifyOtherKeys 2, mouse event, mouse format, (3), modes; the rest is not used.
_TERMINAL: Final = Struct("<HHIIHHHHBHHIB3xBBB3xQ56x")
_PALETTE_BYTES: Final = 256 * 3
_PALETTE_MASK_BYTES: Final = 32
# Key, pages, history, x, y, cursor style, flags, pen, link counter, charsets, protected, stack of
# keyboard flags, semantic click (2), whether a cursor is saved.
_SCREEN: Final = Struct("<HHQHHBB16s4xHxB8s2xB")
_SAVED: Final = Struct("<HH16sBH")
# Columns, rows, styles, links, capacities.
_PAGE: Final = Struct("<HHHH12x")
_STYLE: Final = Struct("<4s4s4sH2x")
_U16: Final = Struct("<H")
_U32: Final = Struct("<I")
_ROW: Final = Struct("<BH")
_GRAPHEME: Final = Struct("<HHH")

_CODEPOINT, _GRAPHEME_KIND, _PALETTE_KIND = range(3)
_WIDE, _TAIL = 1, 2
# Bits of libghostty's style flags, from 0 on; the kind of underline is in bits 8 to 10.
_FLAGS: Final = (
    styles.BOLD,
    styles.ITALIC,
    styles.FAINT,
    styles.BLINK,
    styles.REVERSE,
    styles.CONCEAL,
    styles.STRIKE,
    styles.OVERLINE,
)
# Private modes by their bit; ANSI modes are negative.
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
    """The character sets in the slots G0 to G3, and which slot is in use.

    A set is 0 to 3 for `utf8`, `ascii`, `british` and `dec_special`. `gl` is the slot in use, 0 to
    3.
    """

    sets: tuple[int, int, int, int]
    gl: int


class Saved(NamedTuple):
    """The state of the cursor that a program has saved by DECSC."""

    x: int
    """The column from 0; the screen's width if the next character goes to the next row."""
    y: int
    pen: Style
    origin: bool
    charsets: Charsets


NOTHING_SAVED: Final = Saved(0, 0, PLAIN, False, Charsets((0, 0, 0, 0), 0))


class Page:
    """Some rows of a screen, which are decoded on demand."""

    __slots__ = ("_data", "_graphemes", "_links", "_rows", "_styles", "cols", "tables")

    def __init__(self, data: memoryview) -> None:
        self.cols, rows, style_count, link_count = _PAGE.unpack_from(data)
        at = _PAGE.size
        self._data = data
        self._styles: dict[int, Style] = {0: PLAIN}
        for _ in range(style_count):
            (number,) = _U16.unpack_from(data, at)
            self._styles[number] = _style(bytes(data[at + 2 : at + 18]))
            at += 18
        self._links: dict[int, str] = {}
        for _ in range(link_count):
            (number,) = _U16.unpack_from(data, at)
            self._links[number], at = _link(data, at + 2)
        tables = at
        # Flags, number of cells, position of the cells.
        self._rows: list[tuple[int, int, int]] = []
        for _ in range(rows):
            flags, count = _ROW.unpack_from(data, at)
            at += _ROW.size
            self._rows.append((flags, count, at))
            at += count << (flags >> 4 & 3)
        self._graphemes: dict[tuple[int, int], str] = {}
        #: The tables that the words of rows refer to. With equal tables, equal words decode to the
        #: same cells.
        self.tables: bytes = bytes(data[:tables]) + bytes(data[at:])
        (count,) = _U32.unpack_from(data, at)
        at += 4
        for _ in range(count):
            y, x, length = _GRAPHEME.unpack_from(data, at)
            at += _GRAPHEME.size
            marks = data[at : at + 4 * min(length, MARKS_MAX)]
            self._graphemes[y, x] = bytes(marks).decode("utf-32-le", "replace")
            at += 4 * length

    def __len__(self) -> int:
        return len(self._rows)

    def words(self, y: int) -> bytes:
        """Return the encoded cells of row `y` of this page."""
        flags, count, at = self._rows[y]
        return bytes(self._data[at : at + (count << (flags >> 4 & 3))])

    def cells(self, y: int) -> list[Cell]:
        """Return the cells of row `y` of this page, up to the last cell that was written to."""
        flags, count, at = self._rows[y]
        width = flags >> 4 & 3
        if width < 2:
            # Code points without styles.
            text = bytes(self._data[at : at + (count << width)])
            decoded = text.decode("utf-16-le", "replace") if width else text.decode("latin-1")
            return [_cell(char, PLAIN) for char in decoded.replace("\0", " ")]
        words = struct.unpack_from(f"<{count}{'Q' if width == 3 else 'I'}", self._data, at)
        cells = [self._decode(word, y, x) for x, word in enumerate(words)]
        for x, cell in enumerate(cells):
            # A wide blank: two narrow ones look the same, and can be painted.
            if not cell.data and (not x or cells[x - 1].data == " "):
                cells[x] = _cell(" ", cell.style)
        return cells

    def _decode(self, word: int, y: int, x: int) -> Cell:
        kind, content = word & 3, word >> 2 & 0xFFFFFF
        if kind > _GRAPHEME_KIND:
            if kind == _PALETTE_KIND:
                return _cell(" ", Style(bg=content & 0xFF))
            # Red is the lowest byte.
            red, green, blue = content & 0xFF, content >> 8 & 0xFF, content >> 16
            return _cell(" ", Style(bg=RGB | red << 16 | green << 8 | blue))
        style = self._styles.get(word >> 26 & 0xFFFF, PLAIN)
        if link := word >> 48:
            style = with_link(style, self._links.get(link, ""))
        width = word >> 42 & 3
        if width == _TAIL:
            return _cell("", style)
        char = chr(content) if content and content <= 0x10FFFF else " "
        if kind == _GRAPHEME_KIND and not (char == " " and width == _WIDE):
            return Cell(char + self._graphemes.get((y, x), ""), style)
        return _cell(char, style)


class ScreenState:
    """The state of the main or of the alternate screen."""

    __slots__ = ("charsets", "keys", "link", "pages", "pen", "saved", "shape", "wraps", "x", "y")

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
        self.pen: Style = _style(pen)
        self.charsets = _charsets(charsets)
        self.keys = _stack(index, stack)
        at = _SCREEN.size
        self.saved: Saved | None = None
        if has_saved:
            x, y, saved_pen, flags, saved_charsets = _SAVED.unpack_from(payload, at)
            at += _SAVED.size
            # Bit 1 is set if the next character wraps.
            x += flags >> 1 & 1
            self.saved = Saved(x, y, _style(saved_pen), bool(flags & 4), _charsets(saved_charsets))
        if payload[at]:
            link, _ = _link(payload, at)
            self.pen = with_link(self.pen, link)
        self.pages: list[Page] = []


class Dump:
    """The state of a libghostty terminal, parsed from its binary snapshot `data`."""

    def __init__(self, data: bytes) -> None:
        if not data.startswith(_MAGIC):
            raise DumpError(f"the emulator's snapshot begins with {data[:10]!r}, not {_MAGIC!r}")
        view = memoryview(data)
        self.screens: dict[int, ScreenState] = {}
        #: The bytes so far of an incomplete sequence or character.
        self.held = b""
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
            elif tag == _PAGE_TAG and screen is not None:
                screen.pages.append(Page(payload))
            elif tag == _CONTINUATION_TAG:
                self.held = bytes(payload)
            elif tag == _READY_TAG:
                return
        raise DumpError("the emulator's snapshot ends before its READY record")

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
    """Return kitty's stack of keyboard flags, oldest first; the last entry is in effect.

    `flags` is the library's circular buffer of entries, and `index` the index of the newest entry.
    """
    index &= 7
    if any(flags[index + 1 :]):
        # The stack has overflowed, so the oldest entries come after the newest.
        return tuple(flags[index + 1 :] + flags[: index + 1])
    return tuple(flags[: index + 1])


def _link(data: memoryview, at: int) -> tuple[str, int]:
    """Return the hyperlink encoded at index `at` of `data`, and the index just past its encoding.

    The hyperlink is its parameters, a semicolon and its address. It is empty if the address is
    empty or too long, a character is not printable ASCII, or the parameters have a semicolon.
    """
    kind = data[at]
    at += 5
    parameters = ""
    if kind == 2:
        (length,) = _U32.unpack_from(data, at - 4)
        parameters = "id=" + bytes(data[at : at + length]).decode("latin-1")
        at += length + 4
    else:
        at += 4
    (length,) = _U32.unpack_from(data, at - 4)
    address = bytes(data[at : at + length]).decode("latin-1")
    return _checked_link(parameters, address), at + length


def _checked_link(parameters: str, address: str) -> str:
    printable = all("!" <= char <= "~" for char in parameters + address)
    if not printable or not 0 < len(address) <= ADDRESS_MAX or ";" in parameters:
        return ""
    return f"{parameters if len(parameters) <= _PARAMETERS_MAX else ''};{address}"


@lru_cache(maxsize=1024)
def _style(encoded: bytes) -> Style:
    ink, ground, line, packed = _STYLE.unpack(encoded)
    flags = sum(flag for bit, flag in enumerate(_FLAGS) if packed >> bit & 1)
    flags |= (packed >> 8 & 7) * styles.UNDERLINE
    return Style(_colour(ink), _colour(ground), _colour(line), flags)


def _colour(encoded: bytes) -> int:
    kind, first, second, third = encoded
    if kind == 0:
        return DEFAULT
    return first if kind == 1 else RGB | first << 16 | second << 8 | third


@lru_cache(maxsize=4096)
def _cell(data: str, style: Style) -> Cell:
    return Cell(data, style)


def rows_of(state: ScreenState, rows: int) -> list[tuple[Page, int]]:
    """Return the last `rows` rows of a screen, each as its page and its index in the page."""
    found = [(page, y) for page in state.pages for y in range(len(page))]
    return found[len(found) - rows :] if len(found) >= rows else found
