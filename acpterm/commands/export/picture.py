"""Renders a screen as an SVG picture or an HTML page: each character in its cell, with its colours.

A row is text with SGR sequences, as in `acpterm.acp.user_api.ScreenResponse`.

Renderers differ in the width of characters, in whether they collapse spaces, and in the SVG
attributes that they support. So each ASCII word, and each character beyond ASCII, is an element
positioned at its own column, and cannot shift the elements after it. A wide character is centred in
its two cells, since its glyph may come from another font. (rich can draw such pictures too, but
gives wide characters only half of their space.)
"""

import html
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from wcwidth import wcwidth

from acpterm.acp.user_api import ScreenResponse
from acpterm.runtime.sanitize import one_line
from acpterm.terminal.vt.style import (
    BOLD,
    CONCEAL,
    DEFAULT,
    FAINT,
    ITALIC,
    OVERLINE,
    PLAIN,
    REVERSE,
    RGB,
    STRIKE,
    UNDERLINE,
    Style,
    restyle,
)

# Size of a cell in pixels. In most fonts, characters are 0.6 times as wide as the font size. If the
# cells were higher, the vertical lines of frames would have gaps.
WIDTH: Final = 8.4
HEIGHT: Final = 16
# In pixels: the font size, the distance from the top of a cell to the baseline, the margin, and the
# height of the title bar.
_SIZE: Final = 14
_BASELINE: Final = 13
_MARGIN: Final = 12
_BAR: Final = 30
_FONTS: Final = (
    "ui-monospace, 'DejaVu Sans Mono', 'Liberation Mono', Menlo, Consolas, "
    "'Noto Sans Mono CJK SC', monospace"
)
_FOREGROUND: Final = "#d0d0d0"
_BACKGROUND: Final = "#1c1c1c"
# xterm's 16 colours, slightly softer.
_SIXTEEN: Final = (
    *("#2e3436", "#cc3b3b", "#4e9a06", "#c4a000", "#4f7fc4", "#9b5fa8", "#06989a", "#d3d7cf"),
    *("#6b6f6c", "#ef4f4f", "#8ae234", "#fce94f", "#82aee0", "#c48bcf", "#34e2e2", "#ffffff"),
)
# The intensities of red, green and blue in xterm's colours 16 to 231.
_LEVELS: Final = (0, 95, 135, 175, 215, 255)
# Runs of ASCII characters, which have the same width in every font, and single other characters.
_PIECE: Final = re.compile(r"[ -~]+|[^ -~]")
_WORD: Final = re.compile(r"[^ ]+")
_SGR: Final = re.compile(r"\x1b\[([0-9;:]*)m")
_SGR_WHOLE: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
# Characters that are not allowed in XML 1.0, not even as a reference.
_NO_XML: Final = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Run(NamedTuple):
    """Text of one style: ASCII, or one character with its marks; with column and width in cells."""

    column: int
    width: int
    text: str
    style: Style


def title_of(screen: ScreenResponse, command: str) -> str:
    """Return the title of a picture: that of the screen, or `command` if it has none."""
    return one_line(screen.title or command)


def plain(row: str) -> str:
    """Return the text of a screen's row, without its SGR sequences and trailing spaces."""
    return _SGR.sub("", row).rstrip(" ")


def text_mapped(row: str, change: Callable[[str], str]) -> str:
    """Return a screen's row with `change` applied to its text, but not to its SGR sequences."""
    pieces = _SGR_WHOLE.split(row)
    return "".join(piece if number % 2 else change(piece) for number, piece in enumerate(pieces))


def runs(row: str) -> Iterator[Run]:
    """Split a row of a screen into runs (text of one style, with columns), from left to right."""
    column, style = 0, PLAIN
    # The split yields text at even indices, and SGR parameters at odd ones.
    for number, piece in enumerate(_SGR.split(row)):
        if number % 2:
            style = restyle(style, piece)
            continue
        for text, width in _parts(piece):
            yield Run(column, width, text, style)
            column += width


def _parts(text: str) -> list[tuple[str, int]]:
    parts: list[tuple[str, int]] = []
    for piece in _PIECE.findall(text):
        width = len(piece) if piece.isascii() else wcwidth(piece)
        if width < 1 and parts:
            # A combining mark belongs to the character before it: split that character off.
            before, columns = parts.pop()
            if columns > 1 and before.isascii():
                parts.append((before[:-1], columns - 1))
                before, columns = before[-1], 1
            parts.append((before + piece, columns))
        else:
            parts.append((piece, max(1, width)))
    return parts


def svg(rows: Sequence[str], cols: int, title: str) -> str:
    width, height = cols * WIDTH + 2 * _MARGIN, len(rows) * HEIGHT + 2 * _MARGIN + _BAR
    escaped_title = _escape(title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" xml:space="preserve">\n'
        f"<title>{escaped_title}</title>\n"
        # Not the shorthand `font`, which would override the attributes of bold and italic text.
        f"<style>text {{ font-family: {_FONTS}; font-size: {_SIZE}px; "
        "white-space: pre; }</style>\n"
        f'<rect width="{width:g}" height="{height:g}" rx="8" fill="{_BACKGROUND}"/>\n'
        + "".join(
            f'<circle cx="{20 + 20 * number}" cy="{_BAR / 2 + 3:g}" r="6" fill="{colour}"/>'
            for number, colour in enumerate(("#ff5f57", "#febc2e", "#28c840"))
        )
        + f'\n<text x="{width / 2:g}" y="{_BAR / 2 + 8:g}" text-anchor="middle" fill="#a0a0a0">'
        f"{_escape(_shorten(title, max(8, cols - 20)))}</text>\n"
        f'<g transform="translate({_MARGIN} {_MARGIN + _BAR})">\n'
    ]
    for y, row in enumerate(rows):
        row_runs = list(runs(row))
        # Draw backgrounds first, so that no background covers the character of a neighbour.
        parts += [_background(run, y) for run in row_runs]
        parts += [_glyphs(run, y) for run in row_runs]
    return "".join([*parts, "</g>\n</svg>\n"])


def _background(run: Run, y: int) -> str:
    background = _colours(run.style)[1]
    if background == _BACKGROUND:
        return ""
    # Make the rectangle slightly larger than its cells, so that no gap is visible between two of
    # them.
    return (
        f'<rect x="{run.column * WIDTH:g}" y="{y * HEIGHT}" width="{run.width * WIDTH + 0.3:.4g}" '
        f'height="{HEIGHT + 0.3}" fill="{background}"/>\n'
    )


def _glyphs(run: Run, y: int) -> str:
    style = run.style
    if style.flags & CONCEAL or (not run.text.strip() and not _decoration(style)):
        return ""
    attributes = f'fill="{_colours(style)[0]}"'
    attributes += "".join(f' {name}="{value}"' for name, value in _font_attributes(style))
    attributes = f'y="{y * HEIGHT + _BASELINE}" {attributes}'
    return "".join(
        f"<text {_position(word)} {attributes}>{_escape(word.text)}</text>\n"
        for word in _words(run)
    )


def _words(run: Run) -> Iterator[Run]:
    """Split a run into words; keep it whole if spaces are visible, as in underlined text."""
    if not run.text.isascii() or _decoration(run.style):
        yield run
        return
    for word in _WORD.finditer(run.text):
        yield Run(run.column + word.start(), len(word.group()), word.group(), run.style)


def _position(run: Run) -> str:
    if run.width == 2 and not run.text.isascii():
        return f'x="{(run.column + 1) * WIDTH:g}" text-anchor="middle"'
    return (
        f'x="{run.column * WIDTH:g}" textLength="{run.width * WIDTH:g}" '
        'lengthAdjust="spacingAndGlyphs"'
    )


def _font_attributes(style: Style) -> Iterator[tuple[str, str]]:
    """Yield names and values of a style's font attributes, which are the same in SVG and CSS."""
    if style.flags & BOLD:
        yield "font-weight", "bold"
    if style.flags & ITALIC:
        yield "font-style", "italic"
    if style.flags & FAINT:
        yield "opacity", "0.6"
    if decoration := _decoration(style):
        yield "text-decoration", decoration


def page(rows: Iterable[str], title: str) -> Iterator[str]:
    yield (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{_escape(title)}</title>\n<style>\n"
        f"body {{ background: {_BACKGROUND}; color: {_FOREGROUND}; }}\n"
        f"pre {{ font: {_SIZE}px/{HEIGHT}px {_FONTS}; }}\n"
        "pre i { display: inline-block; width: 2ch; font-style: inherit; }\n"
        "</style>\n</head>\n<body>\n<pre>"
    )
    for row in rows:
        yield "".join(map(_span, runs(row))) + "\n"
    yield "</pre>\n</body>\n</html>\n"


def _span(run: Run) -> str:
    style = run.style
    text = _escape(run.text)
    if run.width == 2 and wcwidth(run.text[0]) == 2:
        text = f"<i>{text}</i>"
    foreground, background = _colours(style)
    css = [] if foreground == _FOREGROUND else [f"color:{foreground}"]
    css += [] if background == _BACKGROUND else [f"background:{background}"]
    css += ["visibility:hidden"] if style.flags & CONCEAL else []
    css += [f"{name}:{value}" for name, value in _font_attributes(style)]
    return f'<span style="{";".join(css)}">{text}</span>' if css else text


def _decoration(style: Style) -> str:
    flags = style.flags
    known = ((STRIKE, "line-through"), (OVERLINE, "overline"))
    # The style of underline is stored in the bits from UNDERLINE on.
    kinds = ["underline"] if flags // UNDERLINE & 7 else []
    return " ".join(kinds + [name for flag, name in known if flags & flag])


def _colours(style: Style) -> tuple[str, str]:
    """Return the colours of text and background as `#rrggbb`; reverse video exchanges them."""
    foreground = _FOREGROUND if style.fg == DEFAULT else _colour(style.fg)
    background = _BACKGROUND if style.bg == DEFAULT else _colour(style.bg)
    return (background, foreground) if style.flags & REVERSE else (foreground, background)


def _colour(number: int) -> str:
    if number >= RGB:
        return f"#{number - RGB:06x}"
    if number < 16:
        return _SIXTEEN[number]
    if number >= 232:
        return "#" + 3 * f"{8 + 10 * (number - 232):02x}"
    number -= 16
    red, green, blue = _LEVELS[number // 36], _LEVELS[number // 6 % 6], _LEVELS[number % 6]
    return f"#{red:02x}{green:02x}{blue:02x}"


def _escape(text: str) -> str:
    """Escape text for XML and HTML; characters that are not allowed become U+FFFD."""
    return html.escape(_NO_XML.sub("\ufffd", text))


def _shorten(text: str, length_max: int) -> str:
    return text if len(text) <= length_max else f"{text[: length_max - 1]}…"
