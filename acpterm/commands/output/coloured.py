"""Converts output to text that keeps its colours (SGR in ECMA-48), and no other sequence."""

import re
from typing import Final, TypeAlias

from acpterm.commands.output.text_follow import TextStream
from acpterm.runtime.sanitize import escape_invisible_text
from acpterm.terminal.text.line import ERASE_LEFT, ERASE_LINE, ERASE_RIGHT

# An SGR becomes a character that `Controls` takes for text, the parameters, and the final byte.
# CAN comes first, since an SGR ends any other sequence.
_MARK: Final = "\U0010fffe"
_SGR: Final = re.compile(rb"\x1b\[([0-9;:]{0,256})m")
_CUT_SGR: Final = re.compile(rb"\x1b(?:\[[0-9;:]{0,256})?\Z")
_ESCAPED_SGR: Final = re.compile(r"(\x1b\[[0-9;:]*m)")
_MARKED: Final = re.compile(f"{_MARK}([0-9;:]*)m")
_TOKEN: Final = re.compile(f"{_MARKED.pattern}|[\b\r{ERASE_RIGHT}{ERASE_LEFT}{ERASE_LINE}]|.")
_MOVES: Final = re.compile(f"[\b\r{ERASE_RIGHT}{ERASE_LEFT}{ERASE_LINE}]")
_RESET: Final = re.compile("0*(?:;.*)?")
# Programs that never reset would otherwise let the style grow without end.
_STYLE_MAX: Final = 64
# A line in which the cursor moves is shortened to what it shows, first at this length.
_SHORTENED_MIN: Final = 512

_Style: TypeAlias = tuple[str, ...]
_Cells: TypeAlias = list[tuple[str, _Style]]


class ColouredStream(TextStream):
    """A `TextStream` whose text has the output's colours."""

    def __init__(self) -> None:
        super().__init__()
        self._cut = b""
        self._pending = ""
        self._style: _Style = ()
        self._shorten_at = _SHORTENED_MIN

    @property
    def line(self) -> str:
        return self._coloured(self._pending, self._style)[0]

    def _run(self, characters: bytes) -> str:
        data = self._cut + characters
        cut = _CUT_SGR.search(data)
        self._cut = cut[0] if cut else b""
        data = _SGR.sub(b"\x18" + _MARK.encode() + rb"\1m", data[: len(data) - len(self._cut)])
        *lines, self._pending = (self._pending + self._program(data)).split("\n")
        over = []
        for line in lines:
            text, self._style = self._coloured(line, self._style)
            over.append(f"{text}\n")
        if len(self._pending) > self._shorten_at and _MOVES.search(self._pending):
            self._pending = _shortened(self._pending, self._style)
            self._shorten_at = max(_SHORTENED_MIN, 2 * len(self._pending))
        return "".join(over)

    def _coloured(self, line: str, style: _Style) -> tuple[str, _Style]:
        """Return a line's text, which begins in `style`, and the style at its end."""
        line = line.rstrip("\r")
        if _MOVES.search(line):
            return _overwritten(line, style)
        for parameters in _MARKED.findall(line):
            style = _changed(style, parameters)
        return _MARKED.sub("\x1b[\\1m", line), style


def _overwritten(line: str, style: _Style) -> tuple[str, _Style]:
    cells, _, end = _cells(line, style)
    return _text([*cells, ("", end)], style), end


def _shortened(line: str, style: _Style) -> str:
    """Return a line that shows the same as `line`, and ends at the same column and style."""
    cells, column, end = _cells(line, style)
    if column > len(cells):  # after an erasure: no move leads there
        return line
    text = _text([*cells, ("", end)], style).replace("\x1b[", _MARK)
    return text + "\b" * (len(cells) - column)


def _cells(line: str, style: _Style) -> tuple[_Cells, int, _Style]:
    """Return the cells that `line` leaves, the cursor's column, and the style at the end."""
    cells: _Cells = []
    column = 0
    for token in _TOKEN.finditer(line):
        if token[1] is not None:
            style = _changed(style, token[1])
        elif token[0] in "\b\r":
            column = max(0, column - 1) if token[0] == "\b" else 0
        elif token[0] == ERASE_RIGHT:
            del cells[column:]
        elif token[0] == ERASE_LEFT:
            cells[: column + 1] = [(" ", style)] * min(column + 1, len(cells))
        elif token[0] == ERASE_LINE:
            cells.clear()
        else:
            cells += [(" ", style)] * (column - len(cells))
            cells[column : column + 1] = [(token[0], style)]
            column += 1
    return cells, column, style


def _text(cells: _Cells, shown: _Style) -> str:
    parts = []
    for char, of_char in cells:
        if of_char != shown:
            parts += ["\x1b[m", *of_char]
            shown = of_char
        parts.append(char)
    return "".join(parts)


def _changed(style: _Style, parameters: str) -> _Style:
    sequence = f"\x1b[{parameters}m"
    if _RESET.fullmatch(parameters):
        return (sequence,) if parameters.strip("0;") else ()
    return (*style, sequence)[-_STYLE_MAX:]


def escape(text: str) -> str:
    """Replace invisible and control characters by escapes, but keep colours."""
    pieces = _ESCAPED_SGR.split(text)
    return "".join(p if n % 2 else escape_invisible_text(p) for n, p in enumerate(pieces))


def coloured_tail(text: str, kept: str) -> str:
    """Return `kept`, the end of `text`, preceded by the colours with which it begins."""
    style: _Style = ()
    for sequence in _ESCAPED_SGR.findall(text[: len(text) - len(kept)]):
        style = _changed(style, sequence[2:-1])
    return "".join(style) + kept
