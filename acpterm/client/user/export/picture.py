"""A screen as an SVG picture or a page of HTML: each character in its cell, with its colours.

The rows are those of `acpterm.acp.user_api.ScreenResponse`: text with SGR sequences.

Renderers differ in the width of characters, in whether spaces collapse, and in which attributes of
SVG they know. So each word of ASCII, and each character beyond ASCII, is an element at its own
column: nothing moves what is behind it. A wide character is centred in its two cells, since its
glyph may be of another font. (rich, which draws such pictures too, gives wide characters half
their room.)
"""

import html
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from wcwidth import wcwidth

from acpterm.acp.user_api import ScreenResponse
from acpterm.client.sanitize import one_line
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

#: Pixels of a cell. Most fonts' characters are as wide as 0.6 of their size. A cell that was higher
#: would break the vertical lines of frames.
WIDTH: Final = 8.4
HEIGHT: Final = 16
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
# xterm's, a little softer.
_SIXTEEN: Final = (
    *("#2e3436", "#cc3b3b", "#4e9a06", "#c4a000", "#4f7fc4", "#9b5fa8", "#06989a", "#d3d7cf"),
    *("#6b6f6c", "#ef4f4f", "#8ae234", "#fce94f", "#82aee0", "#c48bcf", "#34e2e2", "#ffffff"),
)
_LEVELS: Final = (0, 95, 135, 175, 215, 255)
# What every font has at the same width, and single characters.
_PIECE: Final = re.compile(r"[ -~]+|[^ -~]")
_WORD: Final = re.compile(r"[^ ]+")
_SGR: Final = re.compile(r"\x1b\[([0-9;:]*)m")
_SGR_WHOLE: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
# What no document in XML 1.0 may have in it, not even as a reference.
_NO_XML: Final = re.compile(r"[^\t\n\r -\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


class Run(NamedTuple):
    """Characters of one look, with their marks: in ASCII, or a single one."""

    column: int
    width: int
    text: str
    style: Style


def render(screen: ScreenResponse, command: str, *, as_page: bool = False) -> str:
    """Draw a screen in a window: as SVG, or as a page of HTML. Without a title it has `command`."""
    title = one_line(screen.title or command)
    return page(screen.rows, title) if as_page else svg(screen.rows, screen.cols, title)


def plain(row: str) -> str:
    """Give the text of a row."""
    return _SGR.sub("", row).rstrip(" ")


def text_mapped(row: str, change: Callable[[str], str]) -> str:
    """Return a row whose text is changed by `change`, and whose colours are not."""
    pieces = _SGR_WHOLE.split(row)
    return "".join(piece if number % 2 else change(piece) for number, piece in enumerate(pieces))


def runs(row: str) -> Iterator[Run]:
    """Take a row apart."""
    column, style = 0, PLAIN
    # Text, parameters, text, …
    for number, piece in enumerate(_SGR.split(row)):
        if number % 2:
            style = restyle(style, piece)
            continue
        for text, width in _parts(piece):
            yield Run(column, width, text, style)
            column += width


def _parts(text: str) -> list[tuple[str, int]]:
    """Give pieces that stand by themselves, and their widths in columns."""
    parts: list[tuple[str, int]] = []
    for piece in _PIECE.findall(text):
        width = len(piece) if piece.isascii() else wcwidth(piece)
        if width < 1 and parts:
            # A mark belongs to the character before it, which may be the last one of several.
            before, columns = parts.pop()
            if columns > 1 and before.isascii():
                parts.append((before[:-1], columns - 1))
                before, columns = before[-1], 1
            parts.append((before + piece, columns))
        else:
            parts.append((piece, max(1, width)))
    return parts


def svg(rows: Sequence[str], cols: int, title: str) -> str:
    """Draw a screen in a window with that title."""
    width, height = cols * WIDTH + 2 * _MARGIN, len(rows) * HEIGHT + 2 * _MARGIN + _BAR
    shown = _escape(title)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width:g}" height="{height:g}" '
        f'viewBox="0 0 {width:g} {height:g}" xml:space="preserve">\n<title>{shown}</title>\n'
        # Not `font`, which would win over the attributes of bold and italic text.
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
        found = list(runs(row))
        # Backgrounds first: no character is covered by that of its neighbour.
        parts += [_ground(run, y) for run in found]
        parts += [_glyphs(run, y) for run in found]
    return "".join([*parts, "</g>\n</svg>\n"])


def _ground(run: Run, y: int) -> str:
    ground = _colours(run.style)[1]
    if ground == _BACKGROUND:
        return ""
    # A little over the edge, so that no line shows between two.
    return (
        f'<rect x="{run.column * WIDTH:g}" y="{y * HEIGHT}" width="{run.width * WIDTH + 0.3:.4g}" '
        f'height="{HEIGHT + 0.3}" fill="{ground}"/>\n'
    )


def _glyphs(run: Run, y: int) -> str:
    style = run.style
    if style.flags & CONCEAL or (not run.text.strip() and not _decoration(style)):
        return ""
    looks = f'fill="{_colours(style)[0]}"'
    looks += "".join(f' {name}="{value}"' for name, value in _svg_looks(style))
    return "".join(
        f'<text {_place(word)} y="{y * HEIGHT + _BASELINE}" {looks}>{_escape(word.text)}</text>\n'
        for word in _words(run)
    )


def _words(run: Run) -> Iterator[Run]:
    """Return the words of a run, without the spaces between, unless a line goes through those."""
    if not run.text.isascii() or _decoration(run.style):
        yield run
        return
    for word in _WORD.finditer(run.text):
        yield Run(run.column + word.start(), len(word.group()), word.group(), run.style)


def _place(run: Run) -> str:
    """Return the attributes that place a run horizontally."""
    if run.width == 2 and not run.text.isascii():
        return f'x="{(run.column + 1) * WIDTH:g}" text-anchor="middle"'
    return (
        f'x="{run.column * WIDTH:g}" textLength="{run.width * WIDTH:g}" '
        'lengthAdjust="spacingAndGlyphs"'
    )


def _svg_looks(style: Style) -> Iterator[tuple[str, str]]:
    if style.flags & BOLD:
        yield "font-weight", "bold"
    if style.flags & ITALIC:
        yield "font-style", "italic"
    if style.flags & FAINT:
        yield "opacity", "0.6"
    if decoration := _decoration(style):
        yield "text-decoration", decoration


def page(rows: Sequence[str], title: str) -> str:
    """Make a page of HTML that shows a screen, and needs nothing else."""
    body = "\n".join("".join(map(_span, runs(row))) for row in rows)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f"<title>{_escape(title)}</title>\n<style>\n"
        f"body {{ background: {_BACKGROUND}; color: {_FOREGROUND}; }}\n"
        f"pre {{ font: {_SIZE}px/{HEIGHT}px {_FONTS}; }}\n"
        "pre i { display: inline-block; width: 2ch; font-style: inherit; }\n"
        f"</style>\n</head>\n<body>\n<pre>{body}\n</pre>\n</body>\n</html>\n"
    )


def _span(run: Run) -> str:
    style = run.style
    text = _escape(run.text)
    if run.width == 2 and wcwidth(run.text[0]) == 2:
        text = f"<i>{text}</i>"
    ink, ground = _colours(style)
    looks = [] if ink == _FOREGROUND else [f"color:{ink}"]
    looks += [] if ground == _BACKGROUND else [f"background:{ground}"]
    looks += ["visibility:hidden"] if style.flags & CONCEAL else []
    looks += [f"{name}:{value}" for name, value in _svg_looks(style)]
    return f'<span style="{";".join(looks)}">{text}</span>' if looks else text


def _decoration(style: Style) -> str:
    flags = style.flags
    known = ((STRIKE, "line-through"), (OVERLINE, "overline"))
    # The kind of underline is above the other flags.
    kinds = ["underline"] if flags // UNDERLINE & 7 else []
    return " ".join(kinds + [name for flag, name in known if flags & flag])


def _colours(style: Style) -> tuple[str, str]:
    """Give the colours of the character and of what is behind it."""
    ink = _FOREGROUND if style.fg == DEFAULT else _colour(style.fg)
    ground = _BACKGROUND if style.bg == DEFAULT else _colour(style.bg)
    return (ground, ink) if style.flags & REVERSE else (ink, ground)


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
    """Give text as it stands in XML and HTML, with U+FFFD for what cannot."""
    return html.escape(_NO_XML.sub("\ufffd", text))


def _shorten(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 1]}…"
