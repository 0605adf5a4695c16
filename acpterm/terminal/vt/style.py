"""Styles of cells, and their SGR sequences: parsing and encoding (ECMA-48 8.3.117, ISO 8613-6).

Rules:

- A colour is DEFAULT, an index of the palette (0 to 255), or RGB + 0xRRGGBB. The 16 basic colours
  are the first 16 of the palette, whichever code selects them.
- Sub-parameters follow colons (`38:2::r:g:b`, `4:3`). The older forms of colours with semicolons,
  as in xterm, are parsed too. Unknown and out-of-range values are ignored.
- Encoded sequences begin with a reset, so they do not depend on the style before them.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

DEFAULT: Final = -1
RGB: Final = 1 << 24

BOLD: Final = 1
FAINT: Final = 2
ITALIC: Final = 4
BLINK: Final = 8
REVERSE: Final = 16
CONCEAL: Final = 32
STRIKE: Final = 64
OVERLINE: Final = 128
# The kind of underline is in the bits above the other flags: 0 none, 1 single, 2 double, 3 curly,
# 4 dotted, 5 dashed.
_KIND: Final = 8
UNDERLINE: Final = 1 << _KIND
_UNDERLINES: Final = 7 << _KIND

# The maximum number of parameters that are parsed: more than any program uses in one sequence.
_PARAMETERS_MAX: Final = 64
# For each code: the flags that the code clears, and the flags that it sets.
_FLAGS: Final = {
    1: (0, BOLD),
    2: (0, FAINT),
    3: (0, ITALIC),
    5: (0, BLINK),
    6: (0, BLINK),
    7: (0, REVERSE),
    8: (0, CONCEAL),
    9: (0, STRIKE),
    53: (0, OVERLINE),
    4: (_UNDERLINES, UNDERLINE),
    21: (_UNDERLINES, 2 * UNDERLINE),
    24: (_UNDERLINES, 0),
    22: (BOLD | FAINT, 0),
    23: (ITALIC, 0),
    25: (BLINK, 0),
    27: (REVERSE, 0),
    28: (CONCEAL, 0),
    29: (STRIKE, 0),
    55: (OVERLINE, 0),
}
# For each code: the field of `Style` that the code sets (0 fg, 1 bg, 2 line), and its value.
_COLOURS: Final = {
    **{30 + number: (0, number) for number in range(8)},
    **{90 + number: (0, 8 + number) for number in range(8)},
    **{40 + number: (1, number) for number in range(8)},
    **{100 + number: (1, 8 + number) for number in range(8)},
    39: (0, DEFAULT),
    49: (1, DEFAULT),
    59: (2, DEFAULT),
}
# For each code that is followed by a colour: the field of `Style` that the code sets to the colour.
_EXTENDED: Final = {38: 0, 48: 1, 58: 2}
_CODES: Final = ((BOLD, 1), (FAINT, 2), (ITALIC, 3), (BLINK, 5), (REVERSE, 7), (CONCEAL, 8))
_CODES_AFTER_UNDERLINE: Final = ((STRIKE, 9), (OVERLINE, 53))


class Style(NamedTuple):
    """The colours, attributes and hyperlink of a cell."""

    fg: int = DEFAULT
    bg: int = DEFAULT
    line: int = DEFAULT  # the colour of the underline
    flags: int = 0  # attributes such as `BOLD`, and `UNDERLINE` times the kind
    link: str = ""  # OSC 8: parameters, a semicolon, the address


class Cell(NamedTuple):
    """One position of the screen."""

    data: str  # with combining characters; empty in the right half of a wide one
    style: Style


PLAIN: Final = Style()
BLANK: Final = Cell(" ", PLAIN)


def with_link(style: Style, link: str) -> Style:
    return style if style.link == link else Style(*style[:4], link)


def restyle(style: Style, parameters: str) -> Style:
    """Return the style after an SGR sequence with `parameters`, such as `1;38:5:9`."""
    # Cache only short strings, and no hyperlinks, to limit the memory of the cache.
    known = _restyle_known if len(parameters) < 48 else _restyle
    return with_link(known(with_link(style, ""), parameters), style.link)


def _restyle(style: Style, parameters: str) -> Style:
    values = list(style[:4])
    items = iter(parameters.split(";")[:_PARAMETERS_MAX])
    for item in items:
        head, *sub = item.split(":")
        code = _number(head)
        if (which := _EXTENDED.get(code)) is not None:
            colour = _colour_of(sub) if sub else _colour_behind(items)
            if colour is not None:
                values[which] = colour
        elif sub:
            if code == 4 and (kind := _number(sub[0])) <= 5:
                values[3] = values[3] & ~_UNDERLINES | kind * UNDERLINE
        elif code in _FLAGS:
            off, on = _FLAGS[code]
            values[3] = values[3] & ~off | on
        elif code in _COLOURS:
            which, colour = _COLOURS[code]
            values[which] = colour
        elif code == 0:
            values = list(PLAIN[:4])
    fg, bg, line, flags = values
    return Style(fg, bg, line, flags)


_restyle_known = lru_cache(maxsize=1024)(_restyle)


def _colour_of(sub: list[str]) -> int | None:
    mode, *values = sub
    if len(values) > 3:
        # The first value is the number of a colour space, which is ignored.
        values = values[1:4]
    return _colour(_number(mode), values)


def _colour_behind(items: Iterator[str]) -> int | None:
    mode = _number(next(items, ""))
    count = {5: 1, 2: 3}.get(mode, 0)
    return _colour(mode, [next(items, "") for _ in range(count)])


def _colour(mode: int, values: list[str]) -> int | None:
    numbers = [_number(value) for value in values]
    if any(number > 255 for number in numbers):
        return None
    if mode == 5 and numbers:
        return numbers[0]
    if mode == 2 and len(numbers) == 3:
        return RGB | numbers[0] << 16 | numbers[1] << 8 | numbers[2]
    return None


def _number(digits: str) -> int:
    digits = digits.lstrip("0")
    return int(digits or "0") if len(digits) < 5 else 9999


def sgr(style: Style) -> str:
    """Return the SGR sequence that sets `style` without its link; it begins with a reset."""
    return _sgr(style.fg, style.bg, style.line, style.flags)


@lru_cache(maxsize=1024)
def _sgr(fg: int, bg: int, line: int, flags: int) -> str:
    codes = [str(code) for flag, code in _CODES if flags & flag]
    if kind := flags >> _KIND:
        codes.append("4" if kind == 1 else f"4:{kind}")
    codes += [str(code) for flag, code in _CODES_AFTER_UNDERLINE if flags & flag]
    codes += [*_paint(fg, 30, 90, 38), *_paint(bg, 40, 100, 48)]
    if line != DEFAULT:
        # Use colons: a terminal that does not know 58 would read parameters after semicolons as
        # attributes of their own.
        codes.append(":".join(_values(line, "58", "")))
    return f"\x1b[0;{';'.join(codes)}m" if codes else "\x1b[m"


def _paint(colour: int, low: int, high: int, code: int) -> list[str]:
    if colour == DEFAULT:
        return []
    if colour < 8:
        return [str(low + colour)]
    if colour < 16:
        return [str(high + colour - 8)]
    return _values(colour, str(code))


def _values(colour: int, *head: str) -> list[str]:
    code, *space = head
    if colour < RGB:
        return [code, "5", str(colour)]
    red, green, blue = colour >> 16 & 255, colour >> 8 & 255, colour & 255
    return [code, "2", *space, str(red), str(green), str(blue)]
