"""One page of a screen's rows in libghostty's snapshot: cells, styles and hyperlinks.

`dump` parses the rest of the snapshot. Integers are little-endian. Rows are decoded on demand.

If all cells of a row are characters in the default style, the row is stored as code points of 8 or
16 bits. Otherwise it is stored as words of 64 bits, or as the low 32 bits of each word if all the
other bits are 0. The bits of a word are:

    bits 0-1 kind, 2-25 content, 26-41 style, 42-43 width, 48-63 hyperlink
"""

from __future__ import annotations

import struct
from functools import lru_cache
from struct import Struct
from typing import Final

from acpterm.terminal.vt import style as styles
from acpterm.terminal.vt.style import DEFAULT, PLAIN, RGB, Cell, Style, with_link

MARKS_MAX: Final = 8  # combining characters kept per cell: more than any script needs
# The maximum length of a hyperlink's address, as in VTE. Longer links are ignored.
ADDRESS_MAX: Final = 2083
# The maximum length in bytes of a hyperlink's parameters. Longer ones are dropped from the link.
_PARAMETERS_MAX: Final = 250

# Columns, rows, number of styles, number of links; the capacities are not used.
_PAGE: Final = Struct("<HHHH12x")
_STYLE: Final = Struct("<4s4s4sH2x")
_U16: Final = Struct("<H")
_U32: Final = Struct("<I")
_ROW: Final = Struct("<BH")
_GRAPHEME: Final = Struct("<HHH")

# The kinds of a word: a character; a character with combining characters; a blank with a background
# from the palette. Kind 3 is a blank with an RGB background.
_CODEPOINT, _GRAPHEME_KIND, _PALETTE_KIND = range(3)
# The widths of a word: the left and the right half of a wide character.
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


class Page:
    """Consecutive rows of a screen, from the payload of a PAGE record."""

    __slots__ = ("_data", "_graphemes", "_links", "_rows", "_styles", "cols", "tables")

    def __init__(self, data: memoryview) -> None:
        self.cols, rows, style_count, link_count = _PAGE.unpack_from(data)
        at = _PAGE.size
        self._data = data
        self._styles: dict[int, Style] = {0: PLAIN}
        for _ in range(style_count):
            (number,) = _U16.unpack_from(data, at)
            self._styles[number] = style_of(bytes(data[at + 2 : at + 18]))
            at += 18
        self._links: dict[int, str] = {}
        for _ in range(link_count):
            (number,) = _U16.unpack_from(data, at)
            self._links[number], at = link_at(data, at + 2)
        tables = at
        # Of each row: its flags, the number of its cells, and the index of its cells in `data`.
        self._rows: list[tuple[int, int, int]] = []
        for _ in range(rows):
            flags, count = _ROW.unpack_from(data, at)
            at += _ROW.size
            self._rows.append((flags, count, at))
            at += count << (flags >> 4 & 3)
        self._graphemes: dict[tuple[int, int], str] = {}
        #: The styles, hyperlinks and combining characters that the words of rows refer to. On pages
        #: with equal tables, equal words decode to equal cells.
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
        """Return the cells of row `y` as they are stored, in 1, 2, 4 or 8 bytes each."""
        flags, count, at = self._rows[y]
        return bytes(self._data[at : at + (count << (flags >> 4 & 3))])

    def cells(self, y: int) -> list[Cell]:
        """Return the cells of row `y`, up to the last cell that was written to."""
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
            # This is the right half of a wide blank. A terminal cannot be sent a wide blank, but
            # two narrow ones look the same.
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


def link_at(data: memoryview, at: int) -> tuple[str, int]:
    """Return the hyperlink at index `at` as `parameters;address`, and the index just past it.

    It is empty if it is too long or not printable ASCII.
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
def style_of(encoded: bytes) -> Style:
    """Decode a style: three colours of 4 bytes, 2 bytes of flags, 2 unused bytes."""
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
