r"""Plain output that has scrolled out of sight before anyone can see it, and need not be emulated.

Plain is output of printing ASCII, TAB, CR and LF alone. It changes nothing but cells and the
cursor. What comes after a CR LF begins at the left of a line, whatever was before. Once as many
lines have followed as the screen has, the cursor is in the last row; once as many again have
followed, every row shows one of these. So of a plain run only its last lines count, given that

- the parser is in no sequence, and
- the whole screen scrolls: no margins are set.

Modes, attributes and tab stops are the same for the lines that are emulated, and there is no
scrollback that a line could be missing from. A CR LF is fed in place of what is left out, and ends
a line that was begun before.
"""

from typing import Final

# Less is emulated: looking would cost as much.
MIN_BYTES: Final = 8 * 1024
_PLAIN: Final = bytes(range(0x20, 0x7F)) + b"\t\r\n"
BREAK: Final = b"\r\n"

MARGINS_QUERY: Final = b"\x1bP$qr\x1b\\\x1bP$qs\x1b\\"
"""Asks for the margins (DECRQSS of DECSTBM and of DECSLRM, which is invalid while it is off)."""


def no_margins(rows: int) -> bytes:
    """Return the answer to `MARGINS_QUERY` while the whole screen of `rows` rows scrolls."""
    return b"\x1bP1$r1;%dr\x1b\\\x1bP0$r\x1b\\" % rows


def skippable(data: bytes, rows: int) -> int:
    """Return how many leading bytes of `data` are out of sight behind it; 0 if that is not known.

    `rows`: the rows of the screen.
    """
    if len(data) < MIN_BYTES or data.translate(None, _PLAIN):
        return 0
    end = len(data)
    for _ in range(2 * rows + 1):
        end = data.rfind(BREAK, 0, end)
        if end <= 0:
            return 0
    return end + len(BREAK)
