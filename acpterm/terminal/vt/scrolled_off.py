r"""Find output that scrolls off the screen before it can be seen, and so need not be emulated.

In simple output (`text.simple_output`), the output after a CR LF begins at the left of a row,
whatever output came before. Let the screen have N rows. When N lines have followed, the cursor is
in the last row. When 2 N lines have followed, every row shows one of these lines. So the screen
depends only on the last 2 N lines, and on the pen (the attributes of characters to be written) at
their beginning, if two conditions hold:

- the output does not begin within an escape sequence;
- the whole screen scrolls: no margins are set.

Later output may begin with REP, an escape sequence that repeats the last character printed. So the
last 2 N lines must print a character: if all of them are blank, nothing is skipped.
Simple output changes neither modes nor tab stops, and the emulator has no scrollback.

The skipped output is replaced by a CR LF, which ends the current line, and by the SGR sequences
that set the pen: the last reset in the skipped output, and those after it.
"""

from typing import Final, NamedTuple

from acpterm.terminal.text import simple_output

_RESETS: Final = (b"\x1b[m", b"\x1b[0m")

# DECRQSS of DECSTBM and DECSLRM. Without side margins, the second reply says that it is invalid.
MARGINS_QUERY: Final = b"\x1bP$qr\x1b\\\x1bP$qs\x1b\\"


class ScrolledOff(NamedTuple):
    """Output that certainly scrolls off the screen, and the bytes to feed in its place."""

    size: int
    substitute: bytes


def no_margins(rows: int) -> bytes:
    """Return the reply to `MARGINS_QUERY` by a terminal without margins."""
    return b"\x1bP1$r1;%dr\x1b\\\x1bP0$r\x1b\\" % rows


def find(data: bytes, rows: int) -> ScrolledOff | None:
    """Return the beginning of simple output that scrolls off a screen of `rows` rows, if any."""
    # The caller checks that it does not begin within a sequence and that no margins are set.
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
