r"""Output that has scrolled off the screen before anyone can see it, and need not be emulated.

What comes after a CR LF of simple output (`simple_output`) begins at the left of a line, whatever
was before. Once as many lines have followed as the screen has, the cursor is in the last row; once
as many again have followed, every row shows one of these. So only the last lines count, and the pen
(the attributes of what is written next) before them, given that

- the parser is in no sequence, and
- the whole screen scrolls: no margins are set.

The last character printed, which REP repeats, has to be in these lines: nothing is left out where
they are blank. Modes and tab stops are the same for the lines that are emulated, and there is no
scrollback that a line could be missing from. In place of what is left out are fed a CR LF, which
ends a line that was begun before, and the SGR sequences since the last one that resets the pen.
"""

from typing import Final, NamedTuple

from acpterm.terminal.text import simple_output

_RESETS: Final = (b"\x1b[m", b"\x1b[0m")

MARGINS_QUERY: Final = b"\x1bP$qr\x1b\\\x1bP$qs\x1b\\"
"""Asks for the margins (DECRQSS of DECSTBM and of DECSLRM, which is invalid while it is off)."""


class ScrolledOff(NamedTuple):
    """The part of simple output that need not be emulated, and how to do without it."""

    size: int
    """How many leading bytes are left out."""
    substitute: bytes
    """What is fed in their place."""


def no_margins(rows: int) -> bytes:
    """Return the answer to `MARGINS_QUERY` while the whole screen of `rows` rows scrolls."""
    return b"\x1bP1$r1;%dr\x1b\\\x1bP0$r\x1b\\" % rows


def find(data: bytes, rows: int) -> ScrolledOff | None:
    """Return what of simple output has scrolled off a screen of `rows` rows; None for nothing."""
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
