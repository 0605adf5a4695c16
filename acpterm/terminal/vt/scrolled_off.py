r"""Output that scrolls off the screen before anyone can see it, and need not be emulated.

Output after a CR LF of simple output (`simple_output`) begins at the left of a line, whatever came
before. Once as many lines have followed as the screen has rows, the cursor is in the last row; once
as many again have followed, every row shows one of these lines. So only the last lines count, and
the pen (the attributes of later cells) before them, provided that

- the parser is in no sequence, and
- the whole screen scrolls: no margins are set.

The last character printed, which REP repeats, must be in these lines: nothing is skipped if they
are blank. Simple output changes no modes and no tab stops, and the emulator has no scrollback. In
place of the skipped output the emulator is fed a CR LF, which ends the current line, and the SGR
sequences since the last one that resets the pen.
"""

from typing import Final, NamedTuple

from acpterm.terminal.text import simple_output

_RESETS: Final = (b"\x1b[m", b"\x1b[0m")

MARGINS_QUERY: Final = b"\x1bP$qr\x1b\\\x1bP$qs\x1b\\"
"""Asks for the margins: DECRQSS of DECSTBM, and of DECSLRM, which is invalid while it is off."""


class ScrolledOff(NamedTuple):
    """The part of simple output that need not be emulated, and its substitute."""

    size: int
    """How many leading bytes are skipped."""
    substitute: bytes
    """Bytes to feed in their place."""


def no_margins(rows: int) -> bytes:
    """Return the reply to `MARGINS_QUERY` while the whole screen of `rows` rows scrolls."""
    return b"\x1bP1$r1;%dr\x1b\\\x1bP0$r\x1b\\" % rows


def find(data: bytes, rows: int) -> ScrolledOff | None:
    """Return what of simple output scrolls off a screen of `rows` rows; None for nothing."""
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
