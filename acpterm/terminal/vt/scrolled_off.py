r"""Find output that scrolls off the screen before it can be seen, and need not be emulated.

In simple output (`simple_output`), the output after a CR LF begins at the left of a row, whatever
came before. If the screen has N rows, the cursor is in the last row once N lines have followed, and
every row shows one of these lines once 2 N lines have followed. So the screen depends only on the
last 2 N lines, and on the pen (the attributes of later cells) where these begin, provided that

- the output does not begin within an escape sequence, and
- the whole screen scrolls: no margins are set.

The last character printed, which REP repeats, must be in these lines, so nothing is skipped if they
are blank. Simple output changes no modes and no tab stops, and the emulator has no scrollback. In
place of the skipped output, the emulator is fed a CR LF, which ends the current line, and all SGR
sequences from the last reset of the pen on.
"""

from typing import Final, NamedTuple

from acpterm.terminal.text import simple_output

_RESETS: Final = (b"\x1b[m", b"\x1b[0m")

MARGINS_QUERY: Final = b"\x1bP$qr\x1b\\\x1bP$qs\x1b\\"
"""Queries, by DECRQSS, the top and bottom margins (DECSTBM) and the side margins (DECSLRM).

If side margins are off, the reply to the second query is that the query is invalid."""


class ScrolledOff(NamedTuple):
    """Output that scrolls off the screen, and what to feed the emulator in place of it."""

    size: int
    """How many leading bytes of the output are skipped."""
    substitute: bytes
    """The bytes to feed in place of the skipped bytes."""


def no_margins(rows: int) -> bytes:
    """Return the emulator's reply to `MARGINS_QUERY` if a screen of `rows` rows has no margins."""
    return b"\x1bP1$r1;%dr\x1b\\\x1bP0$r\x1b\\" % rows


def find(data: bytes, rows: int) -> ScrolledOff | None:
    """Return the part of `data` that scrolls off a screen of `rows` rows; None if there is none.

    `data` is simple output.
    """
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
